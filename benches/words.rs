//! The terms of messages and tools: `cargo bench --bench words`.
//!
//! `english` and the other messages have 12 to 16 words. `tool` has a description of 40 words and three parameters. Spelling
//! correction is included: the catalog consists of this tool, so the messages have unknown words.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use toolsieve::domain::catalog::texts::{ToolText, Vocabulary};
use toolsieve::domain::selection::relevance::{LexicalModel, Synonyms};

const MESSAGES: [(&str, &str); 5] = [
    ("english", "please create a new issue in the repository about the login errors from yesterday"),
    ("german", "leg bitte im Repository ein neues Issue zu den Anmeldefehlern von gestern an, die uns gemeldet wurden"),
    ("russian", "заведи пожалуйста новую задачу в репозитории про ошибки входа, о которых вчера написали пользователи"),
    ("japanese", "昨日報告されたログインエラーについて、リポジトリに新しいイシューを作成してください"),
    ("arabic", "أنشئ من فضلك مسألة جديدة في المستودع عن أخطاء تسجيل الدخول التي أبلغ عنها المستخدمون أمس"),
];

const TOOL: ToolText<'_> = ToolText {
    server: "github",
    name: "create_issue",
    title: None,
    description: "Creates a new issue in a repository and assigns it to people. The body may contain Markdown, and mentions notify the \
        people that they name. Labels have to exist before. Returns the number and the address of the new issue, or an error",
    parameters: Vec::new(),
    synonyms: &[],
};

fn words(criterion: &mut Criterion) {
    let model = LexicalModel::default();
    let parameters = vec![
        ("title".into(), "Title of the issue".into()),
        ("body".into(), "Text of the issue".into()),
        ("labels".into(), "Names of labels, without duplicates".into()),
    ];
    let tool = ToolText { parameters, ..TOOL };
    let vocabulary = Vocabulary::of(model.analyzer(), [tool.clone()].into_iter());
    let synonyms = Synonyms::default();
    let mut group = criterion.benchmark_group("words");
    for (language, message) in MESSAGES {
        group.bench_function(language, |bench| bench.iter(|| model.expanded_query_vector(black_box(message), &synonyms, &vocabulary)));
    }
    group.bench_function("tool", |bench| bench.iter(|| model.document_vector(black_box(&tool))));
    group.finish();
}

criterion_group!(benches, words);
criterion_main!(benches);
