//! The texts of the console, one file per language.

use std::sync::LazyLock;

use actix_web::http::header::HeaderMap;
use maud::{Markup, html};

use crate::http::pages::texts::{Languages, declare};
use crate::http::problem::Problem;

declare! {
    language console overview playground sign_out skip
    sign_in admin_key sign_in_hint wrong_key too_many no_admin_key open_directly outdated_form
    servers tools messages calls tokens_saved saved_share success recovered last_days shadow_on changed_definitions
    server state connected starting retrying error tool top_tools nothing_called no_servers
    token_plot before after
    message message_hint as_principal as_hint groups model settings settings_hint unchanged run
    needs_tool needs_no_tool decided_by margin signal value weight product parts language_of unsure
    rank score cosine words bm25 server_score covers learned fused judged sent kept tokens yes no with_settings
    candidates candidates_hint nothing_ranked failed in_english
    by_head by_turn_head by_courtesy by_asked by_examples by_words by_partial by_no_tools by_learned by_named by_off
    cut_limit cut_fall_off cut_budget cut_duplicate cut_per_server cut_gate cut_judge
    access activity parts_of_list previous next of any all name description tag tags pinned caller actions save remove
    change cancel refresh one_per_line patterns_hint more_tools in_file done_approved done_saved done_removed
    done_revoked other_version removed_meanwhile name_taken taken_by session_ended signed_in_again send_again entered period last days
    money_saved pin unpin shadow_messages would_save would_hide shadow_worst shadow_why
    last_listed changes success_hint definition_changes no_changes state_same state_new state_changed state_withheld
    added removed more_changes changed_at approve title_and_instructions prompt more_parts duplicates duplicates_hint
    no_duplicates same_definition same_name similar_texts lookalikes more_groups
    new_server server_name_hint entry entry_hint stored_hint entry_warnings in_servers_file server_in_file
    remove_server_hint switch_on switch_off restart switched_off not_used done_switched_on done_switched_off
    done_restarted being_connected read_only viewer viewer_hint role role_caller
    search search_hint find no_tools not_listed last_used recovered_share recovered_hint public_name not_published
    offered first_seen approved_at hidden_text of_tool of_server_file of_settings of_admin written description_hint
    synonyms synonyms_hint tags_hint pinned_hint reset raw_definition
    shape shape_hint shown hidden fixed_value default_value required filled no_longer disabled_hint more_parameters
    shape_misfits
    rules keys toolsets rules_hint settings_rules rule no_rules too_many_rules up down add_rule change_rule effect allow
    block everything annotations callers groups_named models default_effect as_in_settings set_default see_effect draft
    draft_hint effect_of_draft loses gains no_effect no_effect_compared more_callers compared not_compared patterns_not_compared
    discard user_of user_of_none
    no_keys new_key key_name_hint empty_all expires expires_in_days whole_number empty_never trusted trusted_hint create key_created
    key_once all_keys key_active key_expired key_revoked key_overridden revoke revoke_hint no_toolsets new_toolset
    toolset_name_hint toolset_in_file remove_toolset_hint toolset_in_rules toolset_in_keys exclude always members warnings
    time event chat caller_hint tool_hint outcome outcome_success outcome_tool_error outcome_rejected outcome_failed
    outcome_cancelled outcome_limited outcome_input_required filter no_filter no_events earlier selected kept_all
    searched called was_not_offered story as_table no_message_texts
    live live_new live_lost live_paused live_ended live_waiting
    run_tool run_hint run_now about_tool result request status duration repairs cut_off no_parameters parameters_without_field
    all_as_json all_as_json_hint arguments as_json not_sent not_json
    done_missing replay then now then_and_now select_again_hint same_selection was_missing
    missing_hint report_missing add_pin add_synonym add_block not_saved
    earlier_turns earlier_turns_hint strictness_hint more_tools_selected fewer_tools_selected
    hard_to_find weak_short weak_long weak_no_verb weak_like_sibling proposal use_proposal
    try_text changed_messages trial_cut
    savings kind money messages_or_answers saved_by_selections cost_judge cost_enrich cost_smart_select cost_own_keys
    no_prices unpriced saved_tokens_by_day saved_money_by_day cost_by_day comparison comparison_hint arm arm_none
    arm_static arm_dynamic chats tools_at_first tools_at_last searches tokens_per_message
    learning learning_hint mode mode_hint learning_auto learning_always learning_off learning_is_off model_of_messages
    remembered_messages scopes scope scope_hint scopes_that_count scope_counts stored_messages uses uses_needed since without_learning with_learning
    replayed_at last_replay no_replay ndcg replay_now replay_hint replay_results replay_results_hint replay_plot replay_plot_hint replay_curve replay_curve_hint
    more_scopes nothing_learned learned_by_tool by_tool_hint evidence more_evidence count age_days delta delta_hint
    learned_for_message learned_for_message_hint learned_caller_hint learned_try moves_nothing message_needed message_too_long
    kind_called kind_found kind_invalid kind_failed kind_helpful kind_missing kind_wrong kind_passed_over
    forget forget_what forget_value_hint forget_needs_name forget_next forget_all forget_hint forgotten what_learning_changed
    not_narrowed more_functions candidates_allowed check_rules
    check check_hint check_caller_hint check_tool_hint reason groups_hint drag_hint
    secrets secrets_hint no_secrets delete_all_of delete_all_hint done_forgotten
    presets presets_hint no_presets published_toolsets excluded_toolsets
    log_lines log_lines_hint
}

const FILES: [(&str, &str); 2] = [("en", include_str!("texts/en.toml")), ("de", include_str!("texts/de.toml"))];

static LANGUAGES: LazyLock<Languages<Texts>> = LazyLock::new(|| Languages::new(&FILES));

/// The texts in the first language of `Accept-Language` that the console speaks, otherwise in English.
pub(super) fn texts(headers: &HeaderMap) -> &'static Texts {
    LANGUAGES.of(headers)
}

/// What an error says. Where the console has no text of its own, this is the API's text in English, and marked as such on other pages.
pub(super) fn reason(texts: &Texts, problem: &Problem) -> Markup {
    let detail = &problem.detail;
    let own = [
        &texts.read_only,
        &texts.whole_number,
        &texts.not_json,
        &texts.message_needed,
        &texts.message_too_long,
        &texts.forget_needs_name,
        &texts.name_taken,
    ];
    html! {
        @if texts.language == "en" || own.contains(&detail) { (detail) }
        @else { (texts.in_english) " " span lang="en" { (detail) } }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{self, HeaderMap, HeaderValue};

    use super::{FILES, Texts, reason, texts};
    use crate::http::pages::texts::check;
    use crate::http::problem::Problem;

    #[test]
    fn every_language_has_every_text() {
        check::<Texts>(&FILES);
    }

    #[test]
    fn errors_in_another_language_are_marked() {
        let mut german = HeaderMap::new();
        german.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static("de"));
        let (german, english) = (texts(&german), texts(&HeaderMap::new()));
        let of_api = Problem::invalid("name", "a <name> is missing.");
        assert_eq!(reason(english, &of_api).into_string(), "a &lt;name&gt; is missing.");
        assert_eq!(reason(german, &of_api).into_string(), "Meldung auf Englisch: <span lang=\"en\">a &lt;name&gt; is missing.</span>");
        let own = Problem::invalid("name", german.name_taken.clone());
        assert_eq!(reason(german, &own).into_string(), german.name_taken);
    }

    #[test]
    fn the_first_known_language_counts() {
        for (accepted, language) in [("de-CH,en;q=0.5", "de"), ("fr,de;q=0.8,en", "de"), ("en-GB", "en"), ("fr", "en"), ("", "en")] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static(accepted));
            assert_eq!(texts(&headers).language, language, "{accepted}");
        }
        assert_eq!(texts(&HeaderMap::new()).language, "en");
    }
}
