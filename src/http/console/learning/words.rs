//! The words for evidence and modes.

use std::collections::BTreeMap;

use crate::domain::learning::evidence::EvidenceKind;
use crate::http::console::parts::grouped;
use crate::http::console::text::Texts;
use crate::settings::LearningMode;

pub(super) fn kind(texts: &Texts, kind: EvidenceKind) -> &str {
    match kind {
        EvidenceKind::Called => &texts.kind_called,
        EvidenceKind::Found => &texts.kind_found,
        EvidenceKind::Invalid => &texts.kind_invalid,
        EvidenceKind::Failed => &texts.kind_failed,
        EvidenceKind::Helpful => &texts.kind_helpful,
        EvidenceKind::Missing => &texts.kind_missing,
        EvidenceKind::Wrong => &texts.kind_wrong,
        EvidenceKind::PassedOver => &texts.kind_passed_over,
    }
}

/// Counts by kind, such as "called 4, found 1".
pub(super) fn kinds(texts: &Texts, kinds: &BTreeMap<EvidenceKind, usize>) -> String {
    let parts: Vec<String> = kinds.iter().map(|(of, count)| format!("{} {}", kind(texts, *of), grouped(*count as u64))).collect();
    parts.join(", ")
}

pub(super) fn mode(texts: &Texts, mode: LearningMode) -> &str {
    match mode {
        LearningMode::Auto => &texts.learning_auto,
        LearningMode::Always => &texts.learning_always,
        LearningMode::Off => &texts.learning_off,
    }
}

/// A mean nDCG@5.
pub(super) fn figure(value: f64) -> String {
    format!("{value:.3}")
}
