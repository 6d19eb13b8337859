//! What use has taught.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use toolsieve::domain::access::api_key::KeyId;
use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use toolsieve::domain::learning::memory::RememberedMessage;
use toolsieve::domain::learning::scope::{Audience, Scope};
use toolsieve::domain::learning::vector::MessageVector;
use toolsieve::service::ports::{CalledInChat, FilledCall, Forgotten, LearnedUse, Store};

const MODEL: &str = "model";

fn used(id: &str, principal: &str, tool: &str, kind: EvidenceKind, minute: u32) -> LearnedUse {
    let scopes: Vec<Scope> = [format!("-/caller={principal}"), "-/all".to_owned()].iter().filter_map(|text| Scope::read(text)).collect();
    LearnedUse {
        message: RememberedMessage {
            id: id.into(),
            vector: MessageVector::of(&[0.6, -0.8, 0.0]).unwrap(),
            rivals: [(ToolId::new("server", "one"), 2.5), (ToolId::new("server", "two"), 1.25)].into(),
        },
        principal: Arc::from(principal),
        scopes: scopes.into(),
        evidence: Evidence { tool: ToolId::new("server", tool), kind, at: Minute(minute) },
    }
}

pub(crate) async fn what_was_learned_comes_back_by_model(store: &dyn Store) {
    let (old, new) = (used("b", "user:b", "one", EvidenceKind::Called, 10), used("a", "user:a", "two", EvidenceKind::Wrong, 20));
    store.save_learned(MODEL, &[new.clone(), old.clone()]).await.unwrap();
    store.save_learned("other", &[used("c", "user:a", "two", EvidenceKind::Called, 5)]).await.unwrap();
    let sorted = |mut uses: Vec<LearnedUse>| {
        for one in &mut uses {
            let mut scopes = one.scopes.to_vec();
            scopes.sort_unstable();
            one.scopes = scopes.into();
        }
        uses
    };
    assert_eq!(sorted(store.learned(MODEL, UNIX_EPOCH, (10, 10)).await.unwrap()), sorted(vec![new.clone(), old]));
    let since = store.learned(MODEL, Minute(20).time(), (10, 10)).await.unwrap();
    assert_eq!(sorted(since), sorted(vec![new.clone()]), "what is as old as that, or newer");
    let later = used("a", "user:a", "two", EvidenceKind::Helpful, 30);
    store.save_learned(MODEL, std::slice::from_ref(&later)).await.unwrap();
    assert_eq!(
        sorted(store.learned(MODEL, UNIX_EPOCH, (1, 10)).await.unwrap()),
        sorted(vec![later]),
        "the newest verdict of the newest message"
    );
    let by_one: Vec<LearnedUse> =
        (100..110).map(|minute| used(&format!("flood{minute}"), "user:f", "one", EvidenceKind::Called, minute)).collect();
    store.save_learned(MODEL, &by_one).await.unwrap();
    let kept = store.learned(MODEL, UNIX_EPOCH, (3, 2)).await.unwrap();
    let kept: Vec<&str> = kept.iter().map(|one| &*one.message.id).collect();
    assert_eq!(kept, ["flood109", "flood108", "a"], "a flood by one caller displaces nobody");
    // Versions before 0.2 could store a group without a name, which nothing reads.
    let nameless = Scope { key: "-".into(), audience: Audience::Group("".into()) };
    let one = used("d", "user:d", "one", EvidenceKind::Called, 200);
    let scopes: Vec<Scope> = one.scopes.iter().cloned().chain([nameless]).collect();
    store.save_learned(MODEL, &[LearnedUse { scopes: scopes.into(), ..one.clone() }]).await.unwrap();
    assert_eq!(sorted(store.learned(MODEL, UNIX_EPOCH, (1, 10)).await.unwrap()), sorted(vec![one]), "an unknown scope costs nothing else");
}

pub(crate) async fn what_was_learned_is_forgotten(store: &dyn Store) {
    let uses = [
        used("a", "user:a", "one", EvidenceKind::Called, 10),
        used("a", "user:a", "two", EvidenceKind::PassedOver, 10),
        used("b", "user:b", "one", EvidenceKind::Called, 20),
        used("c", "user:c", "one", EvidenceKind::Called, 30),
    ];
    store.save_learned(MODEL, &uses).await.unwrap();
    let forget = async |forgotten| store.forget_learned(&forgotten).await.unwrap();
    assert_eq!(forget(Forgotten::Tool(ToolId::new("server", "two"))).await, 1);
    assert_eq!(forget(Forgotten::Caller(PrincipalId::new("user:a"))).await, 1);
    assert_eq!(forget(Forgotten::Before(Minute(25).time())).await, 1);
    assert_eq!(forget(Forgotten::Scope(Scope::read("-/caller=user:c").unwrap())).await, 1, "one message, which still counts for all");
    assert_eq!(store.learned(MODEL, UNIX_EPOCH, (10, 10)).await.unwrap()[0].scopes[..], [Scope::read("-/all").unwrap()]);
    assert_eq!((forget(Forgotten::All).await, store.learned(MODEL, UNIX_EPOCH, (10, 10)).await.unwrap().len()), (1, 0));
}

fn called(chat: &str, principal: &str, tool: &str, minute: u32) -> CalledInChat {
    let scopes = ["-/all".to_owned(), format!("-/caller={principal}")];
    let (chat, at) = (chat.into(), Minute(minute).time());
    let scopes = scopes.iter().filter_map(|text| Scope::read(text)).collect();
    CalledInChat { chat, principal: principal.into(), scopes, tool: ToolId::new("server", tool), at }
}

/// The chats and tools that come back, in their order.
async fn chats(store: &dyn Store, limits: (usize, usize)) -> Vec<(String, String)> {
    let calls = store.called(UNIX_EPOCH, limits).await.unwrap();
    calls.into_iter().map(|call| (call.chat.to_string(), call.tool.name.to_string())).collect()
}

pub(crate) async fn what_chats_called_comes_back_in_order(store: &dyn Store) {
    let calls = [called("a", "user:a", "two", 10), called("b", "user:b", "one", 11), called("a", "user:a", "one", 12)];
    store.save_called(&calls).await.unwrap();
    let known = |names: &[(&str, &str)]| names.iter().map(|(chat, tool)| ((*chat).to_owned(), (*tool).to_owned())).collect::<Vec<_>>();
    assert_eq!(chats(store, (10, 10)).await, known(&[("a", "two"), ("a", "one"), ("b", "one")]));
    store.save_called(&[called("b", "user:b", "one", 20)]).await.unwrap();
    assert_eq!(chats(store, (10, 10)).await, known(&[("b", "one"), ("a", "two"), ("a", "one")]), "a later call of the same tool");
    assert_eq!(store.called(UNIX_EPOCH, (1, 10)).await.unwrap(), [called("b", "user:b", "one", 20)]);
    assert_eq!(store.called(Minute(20).time(), (10, 10)).await.unwrap(), [called("b", "user:b", "one", 20)], "since then");
    let flood: Vec<CalledInChat> = (100..110).map(|minute| called(&format!("x{minute}"), "user:f", "one", minute)).collect();
    store.save_called(&flood).await.unwrap();
    assert_eq!(chats(store, (3, 2)).await, known(&[("x109", "one"), ("x108", "one"), ("b", "one")]));
}

pub(crate) async fn what_chats_called_is_forgotten(store: &dyn Store) {
    let calls =
        ["a", "b", "c"].map(|name| [called(name, &format!("user:{name}"), "one", 10), called(name, &format!("user:{name}"), "two", 11)]);
    store.save_called(&calls.concat()).await.unwrap();
    store.save_called(&[called("old", "user:d", "one", 1)]).await.unwrap();
    // With what was counted as removed.
    let left = async |forgotten| {
        let removed = store.forget_learned(&forgotten).await.unwrap();
        (chats(store, (10, 10)).await.len(), removed)
    };
    assert_eq!(left(Forgotten::Before(Minute(5).time())).await, (6, 1));
    assert_eq!(left(Forgotten::Tool(ToolId::new("server", "two"))).await, (3, 3));
    assert_eq!(left(Forgotten::Caller(PrincipalId::new("user:a"))).await, (2, 1));
    assert_eq!(left(Forgotten::Scope(Scope::read("-/caller=user:b").unwrap())).await, (2, 1), "it still counts for all");
    assert_eq!(left(Forgotten::Scope(Scope::read("-/all").unwrap())).await, (1, 2));
    assert_eq!(left(Forgotten::All).await, (0, 1));
}

/// What a caller taught with one key, for itself and for others. What came with another key stays.
pub(crate) async fn what_one_of_two_keys_taught_is_forgotten(store: &dyn Store) {
    let anna = PrincipalId::new("user:a");
    let scopes = |key: &str, person: &str| -> Arc<[Scope]> {
        [format!("{key}/caller={person}"), format!("{key}/group=g"), format!("{key}/all")]
            .iter()
            .filter_map(|text| Scope::read(text))
            .collect()
    };
    for (id, key, person) in [("1", "k", "user:a"), ("2", "k", "user:b"), ("3", "kk", "user:a"), ("4", "-", "user:a")] {
        let scopes = scopes(key, person);
        let used = LearnedUse { scopes: Arc::clone(&scopes), ..used(id, person, "one", EvidenceKind::Called, 10) };
        store.save_learned(MODEL, &[used]).await.unwrap();
        store.save_called(&[CalledInChat { scopes, ..called(id, person, "one", 10) }]).await.unwrap();
        store.save_filled(&[filled(key, person, &["to"], 10)]).await.unwrap();
    }
    let left = async || {
        let mut ids: Vec<String> =
            store.learned(MODEL, UNIX_EPOCH, (10, 10)).await.unwrap().iter().map(|one| one.message.id.to_string()).collect();
        ids.sort_unstable();
        let mut of_chats: Vec<String> = chats(store, (10, 10)).await.into_iter().map(|(chat, _)| chat).collect();
        of_chats.sort_unstable();
        assert_eq!(ids, of_chats);
        (ids.concat(), store.filled(Some(&ToolId::new("server", "one"))).await.unwrap().first().map(|one| one.people))
    };
    assert_eq!(left().await, ("1234".to_owned(), Some(4)));
    // Each time a message, a chat and the arguments.
    for (key, removed, after, people) in [(Some("other"), 0, "1234", 4), (Some("k"), 3, "234", 3), (None, 3, "23", 2)] {
        let own = Scope::own(key, &anna);
        assert_eq!(store.has_learned_from(&own).await.unwrap(), removed > 0, "{own}");
        assert_eq!(store.forget_learned(&Forgotten::Own(own.clone())).await.unwrap(), removed, "{own}");
        assert_eq!((left().await, store.has_learned_from(&own).await.unwrap()), ((after.to_owned(), Some(people)), false), "{own}");
    }
}

/// Whatever taught them: messages of any model, or chats alone.
pub(crate) async fn all_stored_scopes_are_known(store: &dyn Store) {
    let of_words = used("a/server/one", "user:a", "one", EvidenceKind::Called, 11);
    store.save_learned("old", &[used("a", "user:a", "one", EvidenceKind::Called, 10), of_words]).await.unwrap();
    store.save_learned(MODEL, &[used("b", "user:a", "one", EvidenceKind::Called, 20)]).await.unwrap();
    store.save_called(&[called("c", "user:b", "one", 10), called("c", "user:b", "two", 11)]).await.unwrap();
    store.save_filled(&[filled("-", "user:c", &["to"], 10)]).await.unwrap();
    let known = store.learned_scopes().await.unwrap();
    let known: Vec<(String, u64, u64)> = known.into_iter().map(|one| (one.scope.to_string(), one.messages, one.chats)).collect();
    let expected = [("-/all", 2, 1), ("-/caller=user:a", 2, 0), ("-/caller=user:b", 0, 1)];
    assert_eq!(known, expected.map(|(scope, messages, chats)| (scope.to_owned(), messages, chats)));
    for (caller, is_known) in [("user:a", true), ("user:b", true), ("user:c", true), ("user:d", false)] {
        let caller = PrincipalId::new(caller);
        assert_eq!(store.has_learned_from(&Scope::own(None, &caller)).await.unwrap(), is_known, "{caller:?}");
        assert!(!store.has_learned_from(&Scope::own(Some("k"), &caller)).await.unwrap(), "with another key: {caller:?}");
    }
}

fn filled(key: &str, person: &str, parameters: &[&str], minute: u32) -> FilledCall {
    let parameters: Vec<String> = parameters.iter().map(|&name| name.to_owned()).collect();
    let (principal, at) = (person.into(), Minute(minute).time());
    FilledCall { tool: ToolId::new("server", "one"), key: key.into(), principal, parameters: parameters.into(), at }
}

pub(crate) async fn filled_parameters_are_counted_and_forgotten(store: &dyn Store) {
    let calls = [filled("-", "user:a", &["to", "text"], 10), filled("-", "user:a", &["to"], 11), filled("-", "user:b", &["to"], 12)];
    store.save_filled(&calls).await.unwrap();
    store.save_filled(&[filled("k", "user:a", &["text"], 20), filled("k", "user:c", &[], 30)]).await.unwrap();
    let other = FilledCall { tool: ToolId::new("server", "two"), ..filled("-", "user:a", &["to"], 20) };
    store.save_filled(&[other]).await.unwrap();
    let tool = ToolId::new("server", "one");
    let counts = async || {
        let found = store.filled(Some(&tool)).await.unwrap();
        let one = found.first()?;
        let parameters: Vec<(String, u64)> = one.parameters.clone().into_iter().collect();
        Some((one.calls, one.people, parameters))
    };
    let expected = |calls, people, text: u64, to: u64| {
        let named = [("text", text), ("to", to)].map(|(name, count)| (name.to_owned(), count));
        Some((calls, people, named.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>()))
    };
    assert_eq!(counts().await, expected(5, 4, 2, 3));
    let all: Vec<String> = store.filled(None).await.unwrap().iter().map(|one| one.tool.name.to_string()).collect();
    assert_eq!(all, ["one", "two"]);
    assert_eq!(store.filled(Some(&ToolId::new("server", "three"))).await.unwrap(), []);
    let left = async |forgotten| {
        store.forget_learned(&forgotten).await.unwrap();
        counts().await
    };
    assert_eq!(left(Forgotten::Before(Minute(11).time())).await, expected(5, 4, 1, 3), "what was filled only before");
    assert_eq!(left(Forgotten::Scope(Scope::read("k/caller=user:c").unwrap())).await, expected(4, 3, 1, 3));
    assert_eq!(left(Forgotten::Scope(Scope::read("-/group=g").unwrap())).await, expected(4, 3, 1, 3), "counts don't belong to groups");
    assert_eq!(left(Forgotten::Caller(PrincipalId::new("user:b"))).await, expected(3, 2, 1, 2));
    assert_eq!(left(Forgotten::Key(KeyId::new("k"))).await, expected(2, 1, 0, 2));
    assert_eq!(left(Forgotten::Tool(tool.clone())).await, None);
    assert_eq!(store.filled(None).await.unwrap().len(), 1);
    assert_eq!(left(Forgotten::All).await, None);
    assert_eq!(store.filled(None).await.unwrap(), []);
}

pub(crate) async fn messages_of_another_model_get_new_vectors(store: &dyn Store) {
    let of_words = used("a/server/one", "user:a", "one", EvidenceKind::Called, 11);
    store.save_learned("old", &[used("a", "user:a", "one", EvidenceKind::Called, 10), of_words]).await.unwrap();
    store.save_learned(MODEL, &[used("b", "user:b", "one", EvidenceKind::Called, 20)]).await.unwrap();
    let earlier = store.learned_earlier(MODEL, (10, 10)).await.unwrap();
    let shown: Vec<(&str, &str, Option<&str>)> = earlier.iter().map(|one| (&*one.message, &*one.principal, one.text.as_deref())).collect();
    assert_eq!(shown, [("a", "user:a", None)], "without what words of arguments taught");
    assert_eq!((earlier[0].evidence.kind, earlier[0].scopes.len(), earlier[0].rivals.len()), (EvidenceKind::Called, 2, 2));
    let vector = MessageVector::of(&[0.0, 1.0]).unwrap();
    store.replace_vectors(MODEL, &[("a".into(), vector.clone()), ("none".into(), vector.clone())]).await.unwrap();
    assert_eq!(store.learned_earlier(MODEL, (10, 10)).await.unwrap(), []);
    let known = store.learned(MODEL, UNIX_EPOCH, (10, 10)).await.unwrap();
    let again = known.iter().find(|one| &*one.message.id == "a").unwrap();
    assert_eq!((known.len(), &again.message.vector), (2, &vector));
    assert_eq!(again.message.rivals, earlier[0].rivals, "a replay needs them");
}
