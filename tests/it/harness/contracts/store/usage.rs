//! Sums over the events.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::records::conversation::Conversation;
use toolsieve::domain::selection::experiment::Arm;
use toolsieve::service::ports::{
    AnswerTokens, ArmFigures, Attribution, CallOutcome, ConversationCounts, ConversationQuery, CostCounts, CostRow, CostScope, DayUsage,
    MessageCounts, Purpose, SelectionEvent, SelectionEventKind, Store, ToolCounts, ToolUsage, Usage, UsageQuery,
};

use super::fixtures::{between, called, hour, message};

pub(crate) async fn usage_is_summed_by_days(store: &dyn Store) {
    let (one, two) = (ToolId::new("server", "one"), ToolId::new("日本", "two"));
    let at = |time: SystemTime, kind| SelectionEvent {
        at: time,
        selection: None,
        principal: "anyone".into(),
        key: None,
        chat: None,
        conversation: None,
        attribution: Attribution::default(),
        kind,
    };
    let offered = |tools: &[&ToolId]| SelectionEventKind::Offered {
        message: message(),
        tools: tools.iter().map(|tool| (*tool).clone()).collect(),
        tokens_before: 1_000,
        tokens_after: 10,
        tokens_saved: 0,
        model: None,
        arm: None,
    };
    let searched = |recovered| SelectionEventKind::Searched { message: message(), tools: vec![two.clone()], recovered };
    let millis = Duration::from_millis;
    let minute = Duration::from_mins(1);
    store
        .record(&[at(hour(0), offered(&[&one, &two])), at(hour(0) + minute, called(&one, CallOutcome::Success, millis(10), false))])
        .await
        .unwrap();
    store
        .record(&[
            at(hour(0) + 2 * minute, offered(&[&one])),
            at(hour(0) + 3 * minute, searched(true)),
            at(hour(0) + 4 * minute, called(&two, CallOutcome::ToolError, millis(20), true)),
            at(hour(0) + 5 * minute, called(&one, CallOutcome::Failed, millis(60_000), false)),
            at(hour(25), offered(&[&one])),
            at(hour(25) + minute, searched(false)),
            at(hour(25) + minute, called(&one, CallOutcome::Success, millis(30), false)),
        ])
        .await
        .unwrap();

    let sorted = async |query: UsageQuery| {
        let mut usage = store.usage(&query).await.unwrap();
        usage.tools.sort_by(|one, other| one.tool.cmp(&other.tool));
        usage.days.sort_by_key(|day| day.day);
        usage
    };
    let first_day = sorted(between(hour(0), hour(24))).await;
    let [of_one, of_two] = <[ToolUsage; 2]>::try_from(first_day.tools).unwrap();
    let one_counts = ToolCounts { offered: 2, called: 2, succeeded: 1, tool_errors: 0, recovered: 0 };
    let two_counts = ToolCounts { offered: 1, called: 1, succeeded: 0, tool_errors: 1, recovered: 1 };
    assert_eq!((&of_one.tool, of_one.counts, of_one.called_at), (&one, one_counts, Some(hour(0) + 5 * minute)));
    assert_eq!((&of_two.tool, of_two.counts), (&two, two_counts));
    let slowest = of_one.latencies.quantile(1.0).unwrap();
    assert!(slowest < millis(12), "what failed has no latency: {slowest:?}");
    let messages = MessageCounts { selections: 2, searches: 1, recovered_searches: 1, tokens_before: 2_000, tokens_after: 20 };
    let mut both = one_counts;
    both.add(&two_counts);
    assert_eq!(first_day.days, [DayUsage { day: hour(0), messages, tools: both }]);

    let all = sorted(between(hour(0), hour(25) + minute)).await;
    assert_eq!(all.days.iter().map(|day| (day.day, day.tools.called)).collect::<Vec<_>>(), [(hour(0), 3), (hour(24), 1)]);
    assert_eq!(all.tools[0].counts, ToolCounts { offered: 3, called: 3, succeeded: 2, ..one_counts });
    assert_eq!(all.tools[0].latencies.iter().map(|(_, calls)| calls).sum::<u64>(), 2);
    let narrowed = sorted(UsageQuery { server: Some("日本".into()), tool: Some("two".into()), ..between(hour(0), hour(48)) }).await;
    assert_eq!((narrowed.tools.len(), narrowed.tools[0].counts, narrowed.days[0].tools), (1, two_counts, two_counts));
    assert_eq!(sorted(between(hour(48), hour(72))).await, Usage::default());

    assert_eq!(store.forget_usage_before(hour(23)).await.unwrap(), 0);
    // The day itself, two tools, two ranges of times, and the costs.
    assert_eq!(store.forget_usage_before(hour(24)).await.unwrap(), 6);
    assert_eq!(sorted(between(hour(0), hour(48))).await.days.len(), 1);
}

pub(crate) async fn conversations_are_summed_by_arms(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let event = |minutes: u32, principal: &str, chat: Option<&str>, kind| SelectionEvent {
        at: hour(0) + Duration::from_mins(1) * minutes,
        selection: None,
        principal: principal.into(),
        key: None,
        chat: chat.map(str::to_owned),
        conversation: None,
        attribution: Attribution::default(),
        kind,
    };
    let offered = |count: usize, arm| SelectionEventKind::Offered {
        message: message(),
        tools: vec![tool.clone(); count].into_iter().collect(),
        tokens_before: 1_000,
        tokens_after: 10 * count as u64,
        tokens_saved: 0,
        model: None,
        arm,
    };
    let searched = SelectionEventKind::Searched { message: message(), tools: Vec::new(), recovered: true };
    let (chosen, all) = (Some(Arm::Dynamic), Some(Arm::Static));
    store.record(&[event(0, "me", Some("a"), offered(3, chosen)), event(1, "me", Some("a"), searched)]).await.unwrap();
    store
        .record(&[
            event(2, "me", Some("a"), offered(5, chosen)),
            event(3, "me", Some("a"), called(&tool, CallOutcome::Success, Duration::from_millis(1), false)),
            event(4, "me", Some("b"), offered(40, all)),
            event(5, "me", Some("b"), called(&tool, CallOutcome::ToolError, Duration::from_millis(1), false)),
            event(6, "them", Some("a"), offered(7, chosen)),
            event(7, "me", None, offered(9, None)),
        ])
        .await
        .unwrap();
    let query = |minutes: u32, limit| ConversationQuery { since: hour(0), until: hour(0) + Duration::from_mins(1) * minutes, limit };
    let mut report = store.conversation_figures(&query(60, 2)).await.unwrap();
    report.arms.sort_by_key(|arm| arm.arm);
    let counts = ConversationCounts {
        selections: 3,
        initial_tools: 10,
        final_tools: 12,
        tokens_before: 3_000,
        tokens_after: 150,
        ..Default::default()
    };
    let counts = ConversationCounts { searches: 1, recovered_searches: 1, calls: 1, succeeded: 1, ..counts };
    let [of_all, of_chosen] = <[ArmFigures; 2]>::try_from(report.arms).unwrap();
    assert_eq!((of_chosen.arm, of_chosen.conversations, of_chosen.counts), (chosen, 2, counts));
    assert_eq!((of_all.arm, of_all.conversations, of_all.counts.tool_errors, of_all.counts.final_tools), (all, 1, 1, 40));
    let latest: Vec<_> = report.latest.iter().map(|conversation| (conversation.arm, conversation.counts.initial_tools)).collect();
    assert_eq!(latest, [(chosen, 7), (all, 40)], "the last used first, as many as were asked for");
    assert_eq!(store.conversation_figures(&query(5, 9)).await.unwrap().latest.len(), 1, "a conversation counts where it was used last");
    assert_eq!(store.forget_usage_before(hour(0) + Duration::from_mins(6)).await.unwrap(), 2);
    assert_eq!(store.conversation_figures(&query(60, 9)).await.unwrap().latest.len(), 1);
}

pub(crate) async fn what_conversations_load_is_summed(store: &dyn Store) {
    let event = |minutes: u32, conversation: Conversation, kind| SelectionEvent {
        at: hour(0) + Duration::from_mins(1) * minutes,
        selection: None,
        principal: "me".into(),
        // The session of an address goes before a chat.
        key: None,
        chat: Some("chat".into()),
        conversation: Some(conversation),
        attribution: Attribution::default(),
        kind,
    };
    let (session, chat) = (|| Conversation::client("m"), || Conversation::chat("chat"));
    let took = Duration::from_millis;
    let loaded = |millis, before, bound| SelectionEventKind::Loaded { group: "dev".to_owned(), took: took(millis), before, bound };
    store
        .record(&[
            event(0, session(), SelectionEventKind::Listed { bound: 2 }),
            event(1, session(), loaded(3, 2, 5)),
            event(3, chat(), loaded(1, 0, 3)),
        ])
        .await
        .unwrap();
    store
        .record(&[event(4, session(), loaded(9, 5, 6)), event(5, session(), SelectionEventKind::Unloaded { before: 6, bound: 3 })])
        .await
        .unwrap();
    let query = ConversationQuery { since: hour(0), until: hour(1), limit: 9 };
    let report = store.conversation_figures(&query).await.unwrap();
    let counts: Vec<_> = report
        .latest
        .iter()
        .map(|conversation| (conversation.counts, conversation.longest_load.map(|longest| longest.as_millis())))
        .collect();
    let of_session = ConversationCounts { initial_tools: 2, final_tools: 3, loads: 2, unloads: 1, ..Default::default() };
    let of_chat = ConversationCounts { final_tools: 3, loads: 1, ..Default::default() };
    assert_eq!(counts, [(of_session, Some(9)), (of_chat, Some(1))]);
    let slowest = report.arms[0].load_times.quantile(1.0).unwrap().as_secs_f64() / took(9).as_secs_f64();
    assert!((0.9..1.1).contains(&slowest), "{slowest}");
}

fn to(groups: &[&str], user: Option<&str>) -> Attribution {
    Attribution { groups: groups.iter().map(|group| (*group).to_owned()).collect(), user: user.map(str::to_owned) }
}

fn spent(at: SystemTime, attribution: Attribution, kind: SelectionEventKind) -> SelectionEvent {
    SelectionEvent { at, selection: None, principal: "anyone".into(), key: None, chat: None, conversation: None, attribution, kind }
}

fn offered(model: Option<&str>, tokens_saved: u64) -> SelectionEventKind {
    SelectionEventKind::Offered {
        message: message(),
        tools: Vec::new().into_iter().collect(),
        tokens_before: 1_000,
        tokens_after: 10,
        tokens_saved,
        model: model.map(str::to_owned),
        arm: None,
    }
}

fn answered(purpose: Purpose, is_own: bool, is_estimated: bool) -> SelectionEventKind {
    SelectionEventKind::Answered { purpose, model: "small".into(), is_own, tokens: AnswerTokens { input: 100, output: 7, is_estimated } }
}

/// The rows of a scope, in order: name, purpose, whether a user paid, model, counts.
async fn costs_of(store: &dyn Store, scope: CostScope) -> Vec<(String, Purpose, bool, Option<String>, CostCounts)> {
    let rows = store.costs(hour(0), hour(48)).await.unwrap();
    let of_scope = rows.into_iter().filter(|row| row.scope == scope);
    let mut rows: Vec<_> =
        of_scope.map(|CostRow { name, purpose, is_own, model, counts, .. }| (name, purpose, is_own, model, counts)).collect();
    rows.sort_by(|one, other| (&one.0, one.1, one.2, &one.3).cmp(&(&other.0, other.1, other.2, &other.3)));
    rows
}

pub(crate) async fn costs_are_summed_by_days_groups_and_users(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let anna = || to(&["dev", "ops"], Some("user:anna"));
    store.record(&[spent(hour(0), anna(), offered(Some("gpt"), 500)), spent(hour(1), to(&[], None), offered(None, 0))]).await.unwrap();
    store
        .record(&[
            spent(hour(2), anna(), answered(Purpose::Judge, false, true)),
            spent(hour(3), anna(), called(&tool, CallOutcome::Success, Duration::from_millis(1), false)),
            spent(hour(25), to(&[""], Some("key:ci")), answered(Purpose::SmartSelect, true, false)),
            spent(hour(25), to(&[], None), offered(Some("gpt"), 40)),
        ])
        .await
        .unwrap();

    let chat = |requests, calls, saved_tokens| CostCounts { requests, calls, saved_tokens, ..CostCounts::default() };
    let answer = |estimated| CostCounts { requests: 1, estimated, input_tokens: 100, output_tokens: 7, ..CostCounts::default() };
    let row =
        |name: &str, purpose, is_own, model: Option<&str>, counts| (name.to_owned(), purpose, is_own, model.map(str::to_owned), counts);
    assert_eq!(
        costs_of(store, CostScope::All).await,
        [
            row("", Purpose::Chat, false, None, chat(1, 0, 0)),
            row("", Purpose::Chat, false, Some("gpt"), chat(1, 0, 500)),
            row("", Purpose::Chat, false, Some("gpt"), chat(1, 0, 40)),
            row("", Purpose::Judge, false, Some("small"), answer(1)),
            row("", Purpose::SmartSelect, true, Some("small"), answer(0)),
        ],
        "by day, and calls are counted by tool"
    );
    let of_anna = |name| {
        [
            row(name, Purpose::Chat, false, None, chat(0, 1, 0)),
            row(name, Purpose::Chat, false, Some("gpt"), chat(1, 0, 500)),
            row(name, Purpose::Judge, false, Some("small"), answer(1)),
        ]
    };
    let of_nobody = row("", Purpose::SmartSelect, true, Some("small"), answer(0));
    assert_eq!(costs_of(store, CostScope::Group).await, [vec![of_nobody], of_anna("dev").into(), of_anna("ops").into()].concat());
    let of_key = row("key:ci", Purpose::SmartSelect, true, Some("small"), answer(0));
    assert_eq!(costs_of(store, CostScope::User).await, [vec![of_key.clone()], of_anna("user:anna").into()].concat());
    let first_day = store.costs(hour(0), hour(24)).await.unwrap();
    assert!(first_day.iter().all(|row| row.name != "key:ci") && first_day.len() == 3 + 9, "{first_day:?}");
    assert!(first_day.iter().all(|row| row.day == (row.scope == CostScope::All).then(|| hour(0))), "{first_day:?}");

    assert_eq!(store.forget_usage_of(&PrincipalId::new("user:anna")).await.unwrap(), 3);
    assert_eq!(store.forget_usage_of(&PrincipalId::new("user:anna")).await.unwrap(), 0);
    assert_eq!(costs_of(store, CostScope::User).await, [of_key]);
    assert_eq!((costs_of(store, CostScope::Group).await.len(), costs_of(store, CostScope::All).await.len()), (7, 5));
    store.forget_usage_before(hour(48)).await.unwrap();
    assert_eq!(store.costs(hour(0), hour(48)).await.unwrap(), []);
}

/// Callers choose the names of models, and Open WebUI those of groups and users.
pub(crate) async fn the_names_of_a_day_are_limited(store: &dyn Store) {
    let event = |number: u32| {
        let (model, name) = (format!("model{number}"), format!("name{number}"));
        spent(hour(0), to(&[name.as_str()], Some(&format!("user:{name}"))), offered(Some(&model), 1))
    };
    for batch in [0..600, 600..1_200] {
        store.record(&batch.map(event).collect::<Vec<_>>()).await.unwrap();
    }
    // Known names and the service's own models still count by themselves, and so does the next day.
    store.record(&[event(0), spent(hour(0), to(&[], None), answered(Purpose::Judge, false, false))]).await.unwrap();
    store.record(&[SelectionEvent { at: hour(24), ..event(1_199) }]).await.unwrap();
    let rows = store.costs(hour(0), hour(24)).await.unwrap();
    let messages = |scope, is_wanted: &dyn Fn(&CostRow) -> bool| -> u64 {
        rows.iter().filter(|row| row.scope == scope && row.purpose == Purpose::Chat && is_wanted(row)).map(|row| row.counts.requests).sum()
    };
    let names = |scope| {
        let mut names: Vec<_> = rows.iter().filter(|row| row.scope == scope).map(|row| &row.name).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    assert_eq!([CostScope::All, CostScope::Group, CostScope::User].map(|scope| messages(scope, &|_| true)), [1_201; 3]);
    assert_eq!((names(CostScope::Group), names(CostScope::User)), (201, 1_001), "with `(other)`");
    assert_eq!(messages(CostScope::All, &|row| row.model.as_deref() == Some("(other)")), 1_100);
    assert_eq!(messages(CostScope::All, &|row| row.model.as_deref() == Some("model0")), 2);
    assert_eq!(messages(CostScope::User, &|row| row.name == "user:name0"), 2);
    assert_eq!(messages(CostScope::User, &|row| row.name == "(other)"), 200);
    assert!(rows.iter().any(|row| row.purpose == Purpose::Judge && row.model.as_deref() == Some("small")), "{rows:?}");
    let next = store.costs(hour(24), hour(48)).await.unwrap();
    assert!(next.len() == 3 && next.iter().all(|row| row.model.as_deref() == Some("model1199")), "{next:?}");
}
