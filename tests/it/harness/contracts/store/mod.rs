//! What every implementation of the port `Store` has to keep, as functions on an empty store: one module per noun.
//!
//! `store_contract!(factory)` makes a test of each one; `factory` is an async function that returns an empty store
//! and whatever has to live as long as it.

pub(crate) mod audit;
pub(crate) mod chats;
pub(crate) mod computed;
pub(crate) mod connections;
pub(crate) mod definitions;
pub(crate) mod enrichments;
pub(crate) mod events;
pub(crate) mod feedback;
mod fixtures;
pub(crate) mod keys;
pub(crate) mod learning;
pub(crate) mod listings;
pub(crate) mod policy;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod sessions;
pub(crate) mod switches;
pub(crate) mod tool_facts;
pub(crate) mod toolsets;
pub(crate) mod upkeep;
pub(crate) mod usage;
pub(crate) mod whole;

pub(crate) use fixtures::{chat, events, listing, set, text, vector, written};

macro_rules! store_contract {
    ($factory:path) => {
        $crate::harness::contracts::store::store_contract! {
            $factory:
            audit: the_audit_log_is_found_by_what_it_says, a_batch_that_comes_again_is_stored_once;
            chats: chats_are_kept_by_principal, of_two_changes_of_one_chat_one_is_too_late, many_chats_are_saved_together;
            computed:
                vectors_are_kept_by_model_and_text, thousands_of_vectors_go_in_one_call, token_counts_are_kept,
                what_was_used_lately_is_not_forgotten;
            connections:
                sign_ins_come_back_as_they_were, of_two_refreshes_one_is_claimed, a_pending_sign_in_is_taken_once_by_its_session,
                a_link_opens_one_session;
            definitions: definitions_are_kept_as_they_were_seen_first, what_was_approved_or_listed_lately_is_not_forgotten;
            enrichments: what_is_written_is_kept_by_tool_and_author, what_is_written_and_used_lately_is_not_forgotten;
            events: chats_and_events_are_forgotten_by_age, events_that_come_again_are_counted_once, events_are_found_by_what_they_say;
            feedback: a_selection_is_found_by_its_principal_alone, the_last_verdict_counts;
            keys:
                api_keys_come_back_as_they_were, two_keys_in_use_never_have_one_name,
                what_is_stored_under_a_name_goes_with_its_key;
            learning:
                what_was_learned_comes_back_by_model, what_was_learned_is_forgotten, what_chats_called_comes_back_in_order,
                filled_parameters_are_counted_and_forgotten, all_stored_scopes_are_known, messages_of_another_model_get_new_vectors,
                what_chats_called_is_forgotten, what_one_of_two_keys_taught_is_forgotten;
            listings:
                listings_come_back_as_they_were, a_listing_replaces_the_one_before, lists_of_users_are_merged, a_removed_listing_is_gone,
                servers_say_when_they_were_listed;
            policy: of_two_changes_of_one_policy_one_is_too_late;
            secrets: secrets_are_kept_by_owner_server_and_name, a_secret_is_sealed_anew_only_if_it_is_still_the_same;
            servers: servers_come_back_as_they_were, what_users_stored_for_a_server_goes_with_it;
            sessions: sessions_end_in_time_and_by_count, what_is_loaded_into_a_session_goes_with_it;
            switches: what_is_switched_off_is_kept_by_owner;
            tool_facts: of_two_writings_about_one_tool_one_is_too_late;
            toolsets: toolsets_come_back_as_they_were;
            upkeep: it_names_its_installation, it_says_whether_it_answers, shrinking_loses_nothing;
            usage:
                usage_is_summed_by_days, conversations_are_summed_by_arms, what_conversations_load_is_summed,
                costs_are_summed_by_days_groups_and_users, the_names_of_a_day_are_limited;
            whole: writers_and_readers_do_not_disturb_each_other, odd_texts_come_back;
        }
    };
    ($factory:path: $($noun:ident: $($name:ident),+;)+) => {
        $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let (store, _guard) = $factory().await;
            $crate::harness::contracts::store::$noun::$name(&store).await;
        })+)+
    };
}
pub(crate) use store_contract;
