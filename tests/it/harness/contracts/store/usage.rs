//! Sums over the events.

use std::time::{Duration, SystemTime};

use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::records::conversation::Conversation;
use toolsieve::domain::selection::experiment::Arm;
use toolsieve::service::ports::{
    ArmFigures, CallOutcome, ConversationCounts, ConversationQuery, DayUsage, MessageCounts, SelectionEvent, SelectionEventKind, Store,
    ToolCounts, ToolUsage, Usage, UsageQuery,
};

use super::fixtures::{between, called, hour, message};

pub(crate) async fn usage_is_summed_by_days(store: &dyn Store) {
    let (one, two) = (ToolId::new("server", "one"), ToolId::new("日本", "two"));
    let at = |time: SystemTime, kind| SelectionEvent {
        at: time,
        selection: None,
        principal: "anyone".into(),
        chat: None,
        conversation: None,
        kind,
    };
    let offered = |tools: &[&ToolId]| SelectionEventKind::Offered {
        message: message(),
        tools: tools.iter().map(|tool| (*tool).clone()).collect(),
        tokens_before: 1_000,
        tokens_after: 10,
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
    // The day itself, two tools, and two ranges of times.
    assert_eq!(store.forget_usage_before(hour(24)).await.unwrap(), 5);
    assert_eq!(sorted(between(hour(0), hour(48))).await.days.len(), 1);
}

pub(crate) async fn conversations_are_summed_by_arms(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let event = |minutes: u32, principal: &str, chat: Option<&str>, kind| SelectionEvent {
        at: hour(0) + Duration::from_mins(1) * minutes,
        selection: None,
        principal: principal.into(),
        chat: chat.map(str::to_owned),
        conversation: None,
        kind,
    };
    let offered = |count: usize, arm| SelectionEventKind::Offered {
        message: message(),
        tools: vec![tool.clone(); count].into_iter().collect(),
        tokens_before: 1_000,
        tokens_after: 10 * count as u64,
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
        chat: Some("chat".into()),
        conversation: Some(conversation),
        kind,
    };
    let (session, chat) = (|| Conversation::client("m"), || Conversation::chat("chat"));
    let took = Duration::from_millis;
    let loaded = |millis, before, bound| SelectionEventKind::Loaded { took: took(millis), before, bound };
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
