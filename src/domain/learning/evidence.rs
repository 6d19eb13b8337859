//! Evidence for and against tools, and how much each kind counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::domain::catalog::tool::ToolId;
use crate::domain::text::named::named;

named! {
    /// What happened to a tool after a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum EvidenceKind {
        /// The tool was offered, and a call succeeded.
        Called = "called",
        /// The tool was not offered. The model found it, and a call succeeded.
        Found = "found",
        /// The tool was called with invalid arguments.
        Invalid = "invalid",
        /// A call ended with an error from the tool itself.
        Failed = "failed",
        Helpful = "helpful",
        Missing = "missing",
        Wrong = "wrong",
        /// The tool was offered first, but another one was called.
        PassedOver = "passed_over",
    }
}

/// A message has at most one evidence per tool and aspect. Newer evidence replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    Call,
    Verdict,
    Order,
}

impl EvidenceKind {
    /// Between -1 (against the tool) and 1.5 (for it).
    pub(crate) const fn weight(self) -> f32 {
        match self {
            Self::Called | Self::Helpful => 1.0,
            Self::Found | Self::Missing => 1.25,
            Self::Invalid => 0.5,
            Self::Failed => -0.25,
            Self::PassedOver => -0.1,
            Self::Wrong => -1.0,
        }
    }

    pub(crate) const fn aspect(self) -> Aspect {
        match self {
            Self::Called | Self::Found | Self::Invalid | Self::Failed => Aspect::Call,
            Self::Helpful | Self::Missing | Self::Wrong => Aspect::Verdict,
            Self::PassedOver => Aspect::Order,
        }
    }
}

impl Aspect {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Verdict => "verdict",
            Self::Order => "order",
        }
    }
}

/// One piece of evidence about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub tool: ToolId,
    pub kind: EvidenceKind,
    pub at: Minute,
}

/// A time in minutes since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(pub u32);

impl Minute {
    pub fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(u32::try_from(since.as_secs() / 60).unwrap_or(u32::MAX))
    }

    pub fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::from(self.0) * 60)
    }
}

/// How much evidence still counts: half of it after each half-life.
pub(crate) fn fading(at: Minute, now: Minute, half_life: Duration) -> f32 {
    let age = now.0.saturating_sub(at.0) as f32 * 60.0;
    (-age / half_life.as_secs_f32().max(1.0)).exp2()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EvidenceKind, Minute, fading};

    #[test]
    fn evidence_fades_by_half_lives() {
        let day = Duration::from_hours(24);
        let at = Minute(1_000_000);
        for (days, left) in [(0, 1.0), (1, 0.5), (3, 0.125)] {
            assert!((fading(at, Minute(at.0 + days * 24 * 60), day) - left).abs() < 1e-4, "{days}");
        }
        assert!((fading(at, Minute(0), day) - 1.0).abs() < 1e-6, "a clock that was set back");
    }

    #[test]
    fn each_kind_has_a_sensible_weight() {
        let weight = EvidenceKind::weight;
        assert!(EvidenceKind::ALL.into_iter().all(|kind| weight(kind) != 0.0 && (-1.0..=1.5).contains(&weight(kind))));
        assert!((weight(EvidenceKind::Invalid) - weight(EvidenceKind::Called) / 2.0).abs() < 1e-6, "invalid arguments count half");
    }
}
