//! Evaluates a policy rule by rule. This is slower than the compiled policy but can explain decisions.

use crate::domain::access::policy::compiled::Policy;
use crate::domain::access::policy::tool_side::ToolSide;
use crate::domain::access::principal::Principal;
use crate::domain::access::rule::{Effect, Rule, RulePlace};
use crate::domain::catalog::tool::{ServerName, Tool};

/// The verdict, and the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub effect: Effect,
    /// The rule that decided; `None` if no rule matches, so that the default applies.
    pub rule: Option<RulePlace>,
}

/// A policy applied to one caller. It does not check the limits of the caller's key.
#[derive(Debug)]
pub struct Decisions<'a> {
    policy: &'a Policy,
    single: &'a [ToolSide],
    /// For each rule, whether its caller condition matches.
    held: Vec<bool>,
}

impl Policy {
    pub fn decisions(&self, principal: &Principal) -> Decisions<'_> {
        let single = self.single.get_or_init(|| self.rules().iter().map(|rule| ToolSide::of(&rule.rule)).collect());
        Decisions { policy: self, single, held: self.held(principal) }
    }
}

impl Decisions<'_> {
    pub fn on(&self, tool: &Tool) -> Decision {
        let toolsets = self.policy.toolsets.names_of(tool);
        self.first(|_, side| side.fits(&tool.id, &tool.operation_id, &tool.hints) && side.toolsets.hold(toolsets.iter().copied()))
    }

    /// The verdict on a server whose tools are unknown. Rules about single tools are ignored.
    pub fn on_server(&self, server: &ServerName) -> Decision {
        self.first(|rule, side| rule.is_for_whole_servers() && side.servers.hold([server.as_str()]))
    }

    fn first(&self, fits: impl Fn(&Rule, &ToolSide) -> bool) -> Decision {
        let rules = self.policy.rules().iter().zip(self.single).zip(&self.held);
        let first = rules.filter(|(_, held)| **held).find(|((rule, side), _)| fits(&rule.rule, side));
        match first {
            Some(((rule, _), _)) => Decision { effect: rule.rule.effect, rule: Some(rule.place) },
            None => Decision { effect: self.policy.default_effect(), rule: None },
        }
    }
}
