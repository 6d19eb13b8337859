//! A compiled policy: assigns every tool of a catalog to a visibility class, and finds the classes that a caller may see.
//!
//! A class represents a small program, to which the rules for a tool are reduced. The program lists conditions on callers with
//! their effects, the verdict if none matches, and the toolsets of the tool. The number of the class is a hash of the program. So
//! a class means the same under every policy and on every replica. A change of rules moves only the affected tools, and an
//! outdated index applies the former rules.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};

use crate::domain::access::policy::tool_side::ToolSide;
use crate::domain::access::policy::toolsets::{CompiledToolsets, Membership};
use crate::domain::access::policy::view::RuleAttributes;
use crate::domain::access::principal::Principal;
use crate::domain::access::rule::pattern::{Bits, CallerPatterns, Conditions, Patterns, Scratch, ToolConditions};
use crate::domain::access::rule::{Effect, PlacedRule, Rule};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::{Classes, Members, Scope, VisibilityClass};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::hints;
use crate::domain::catalog::tool::{OperationId, Tool};
use crate::domain::catalog::traits::Traits;
use crate::domain::text::canonical::Fingerprint;

/// The current rules and toolsets.
#[derive(Debug)]
pub struct Policy {
    rules: Arc<[PlacedRule]>,
    default: Effect,
    version: u64,
    servers: Conditions,
    tools: ToolConditions,
    tags: Conditions,
    in_toolsets: Conditions,
    pub(super) toolsets: Arc<CompiledToolsets>,
    /// For each combination of hints, the rules whose annotations match.
    hints: Vec<Bits>,
    /// For each rule, the index of its caller condition in `callers`; `None` if it matches every caller.
    caller_of: Vec<Option<usize>>,
    /// All distinct caller conditions.
    callers: Vec<CallerSide>,
    attributes: RuleAttributes,
    /// The same rules in uncompiled form, to explain decisions.
    pub(super) single: OnceLock<Vec<ToolSide>>,
}

/// A rule's conditions on callers.
#[derive(Debug)]
struct CallerSide {
    fingerprint: Fingerprint,
    /// `None` if the rule has no such condition.
    principals: Option<CallerPatterns>,
    groups: Patterns,
    models: Patterns,
}

/// The rules that remain for one tool. They depend only on the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Program {
    /// Caller conditions, as indexes into `callers`, with their effects. The first match decides.
    steps: Vec<(usize, Effect)>,
    /// The verdict if no step matches.
    otherwise: Effect,
    /// The toolsets that contain the tool, by number.
    toolsets: Bits,
}

/// The programs of a range of tools.
#[derive(Debug, Default)]
struct Part {
    /// All distinct programs, each with its class before hash collisions are resolved.
    programs: Vec<(VisibilityClass, Program)>,
    /// For each tool, the index of its program.
    each: Vec<usize>,
    /// Always-on tools, each with the number of its toolset.
    always: Vec<(usize, OperationId)>,
}

/// The class of every tool of one catalog under one policy.
#[derive(Debug, Default)]
pub struct Assignment {
    pub classes: Arc<Classes>,
    programs: Vec<(VisibilityClass, Program)>,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(Effect::Allow, Vec::new())
    }
}

#[cfg(test)]
thread_local! {
    static COMPILED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Policy {
    /// Number of policies that this thread has compiled.
    #[cfg(test)]
    pub(crate) fn compiled_here() -> usize {
        COMPILED.get()
    }

    /// Compiles valid rules, as returned by [`Rule::read`].
    pub fn new(default: Effect, rules: Vec<PlacedRule>) -> Self {
        #[cfg(test)]
        COMPILED.set(COMPILED.get() + 1);
        let count = rules.len();
        let of = |texts: fn(&Rule) -> &[String]| Conditions::new(rules.iter().map(|rule| texts(&rule.rule)), count);
        let hints = (0..hints::COMBINATIONS).map(|hints| {
            let mut bits = Bits::new(count);
            let holding = rules.iter().enumerate().filter(|(_, rule)| hints::hold(&rule.rule.annotations, hints));
            holding.for_each(|(number, _)| bits.set(number));
            bits
        });
        let hints = hints.collect();
        let (servers, tags) = (of(|rule| &rule.servers), of(|rule| &rule.tags));
        let tools = ToolConditions::new(rules.iter().map(|rule| (&rule.rule.tools[..], rule.rule.effect.reach())), count);
        let in_toolsets = of(|rule| &rule.toolsets);
        let mut callers: Vec<CallerSide> = Vec::new();
        let mut known: HashMap<Fingerprint, usize> = HashMap::new();
        let caller_of = rules.iter().map(|rule| {
            (!rule.rule.is_for_all()).then(|| {
                let side = CallerSide::of(&rule.rule);
                *known.entry(side.fingerprint).or_insert_with(|| {
                    callers.push(side);
                    callers.len() - 1
                })
            })
        });
        let caller_of = caller_of.collect();
        let rules: Arc<[PlacedRule]> = rules.into();
        let version = Fingerprint::of_text(&format!("{default:?} {rules:?}")).prefix();
        Self {
            attributes: RuleAttributes::by(&rules),
            rules,
            default,
            version,
            servers,
            tools,
            tags,
            in_toolsets,
            toolsets: Arc::default(),
            hints,
            caller_of,
            callers,
            single: OnceLock::new(),
        }
    }

    /// Adds the toolsets to which rules and callers refer.
    #[must_use]
    pub fn with_toolsets(mut self, toolsets: Arc<CompiledToolsets>) -> Self {
        let rules = Fingerprint::of_text(&format!("{:?} {:?}", self.default, self.rules)).prefix();
        self.version = if toolsets.version() == 0 {
            rules
        } else {
            Fingerprint::of_bytes(&[rules.to_le_bytes(), toolsets.version().to_le_bytes()].concat()).prefix()
        };
        self.toolsets = toolsets;
        self
    }

    pub fn toolsets(&self) -> &Arc<CompiledToolsets> {
        &self.toolsets
    }

    /// A hash of the policy: equal policies have equal versions.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn rules(&self) -> &[PlacedRule] {
        &self.rules
    }

    pub fn default_effect(&self) -> Effect {
        self.default
    }

    /// Whether the rules allow every tool to every caller.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty() && self.default == Effect::Allow
    }

    /// Whether the caller may use every tool that its key permits.
    pub fn is_open_to(&self, principal: &Principal) -> bool {
        self.is_open() && !self.toolsets.narrow(principal)
    }

    /// Whether a tool is in the toolsets to which the caller is limited. Ignores the rules.
    pub fn reaches(&self, principal: &Principal, tool: &Tool) -> bool {
        if !self.toolsets.narrow(principal) {
            return true;
        }
        let mut found = self.toolsets.membership();
        self.toolsets.find(&tool.id.server, Traits::of(tool), &mut found);
        self.toolsets.admit(&found.member, principal)
    }

    /// Assigns a class to every tool of a catalog.
    pub fn assign(&self, catalog: &Catalog) -> Assignment {
        if self.is_open() && self.toolsets.is_empty() {
            return Assignment::default();
        }
        let count = catalog.tools().len();
        // Use more parts than threads, because some tools take longer than others.
        let size = count.div_ceil(2 * rayon::current_num_threads()).max(1);
        let parts = (0..count.div_ceil(size)).into_par_iter().map(|part| self.part(catalog, part * size..count.min((part + 1) * size)));
        let parts: Vec<Part> = parts.collect();
        let mut each: Vec<VisibilityClass> = Vec::with_capacity(count);
        let mut always: BTreeMap<usize, Vec<OperationId>> = BTreeMap::new();
        let mut known: HashMap<VisibilityClass, Program, RandomState> = HashMap::default();
        for part in parts {
            let classes: Vec<VisibilityClass> =
                part.programs.into_iter().map(|(class, program)| settle(class, program, &mut known)).collect();
            each.extend(part.each.into_iter().map(|program| classes[program]));
            part.always.into_iter().for_each(|(toolset, name)| always.entry(toolset).or_default().push(name));
        }
        let members = self.members(&known, always);
        let version = Fingerprint::of_bytes(&[self.version.to_le_bytes(), catalog.version().to_le_bytes()].concat()).prefix();
        Assignment { classes: Arc::new(Classes::new(version, catalog, each, members)), programs: known.into_iter().collect() }
    }

    /// Computes the programs of the tools at these positions.
    fn part(&self, catalog: &Catalog, places: Range<usize>) -> Part {
        let mut part = Part::default();
        let mut known: HashMap<(Bits, Bits), usize, RandomState> = HashMap::default();
        let mut key = (Bits::new(self.rules.len()), Bits::new(self.toolsets.len()));
        self.for_each(catalog, places, |place, bits, membership| {
            key.0.copy_from(bits);
            key.1.copy_from(&membership.member);
            let program = known.get(&key).copied().unwrap_or_else(|| {
                let program = self.program(bits, &membership.member);
                part.programs.push((self.class(&program), program));
                known.insert(key.clone(), part.programs.len() - 1);
                part.programs.len() - 1
            });
            part.each.push(program);
            part.always.extend(membership.always.iter().map(|number| (number, catalog.tools()[place].operation_id.clone())));
        });
        part
    }

    /// For each toolset, its classes and its always-on tools.
    fn members(
        &self,
        programs: &HashMap<VisibilityClass, Program, RandomState>,
        mut always: BTreeMap<usize, Vec<OperationId>>,
    ) -> BTreeMap<ToolsetName, Members> {
        let mut members: BTreeMap<ToolsetName, Members> = BTreeMap::new();
        for (number, (name, _)) in self.toolsets.iter().enumerate() {
            members.insert(name.clone(), Members { classes: BTreeSet::new(), always: always.remove(&number).unwrap_or_default() });
        }
        for (class, program) in programs {
            for name in program.toolsets.iter().filter_map(|number| self.toolsets.name(number)) {
                members.entry(name.clone()).or_default().classes.insert(*class);
            }
        }
        members
    }

    /// The rules that match no tool of a catalog.
    pub(super) fn idle(&self, catalog: &Catalog) -> Vec<&PlacedRule> {
        let mut is_idle = vec![true; self.rules.len()];
        self.for_each(catalog, 0..catalog.tools().len(), |_, bits, _| bits.iter().for_each(|number| is_idle[number] = false));
        self.rules.iter().zip(is_idle).filter(|(_, is_idle)| *is_idle).map(|(rule, _)| rule).collect()
    }

    /// Calls `visit` for each tool at these positions, with the rules and the toolsets that match the tool.
    fn for_each(&self, catalog: &Catalog, places: Range<usize>, mut visit: impl FnMut(usize, &Bits, &Membership)) {
        let count = self.rules.len();
        let (mut scratch, mut bits) = (Scratch::new(count), Bits::new(count));
        let mut membership = self.toolsets.membership();
        // Pattern matching dominates the cost, so matches are cached per server and per tag list.
        let mut of_servers: HashMap<u32, Bits, RandomState> = HashMap::default();
        let mut of_tags: HashMap<usize, Bits, RandomState> = HashMap::default();
        for ((place, tool, tags), number) in catalog.traits().at(places.clone()).zip(&catalog.servers_of()[places]) {
            let server = &catalog.servers()[*number as usize].name;
            bits.copy_from(of_servers.entry(*number).or_insert_with(|| self.servers.of([server.as_str()], &mut scratch)));
            bits.and(&self.hints[tool.hints]);
            self.tools.keep(server, tool, &mut bits, &mut scratch);
            bits.and(of_tags.entry(tags).or_insert_with(|| self.tags.of(tool.tags.iter().map(AsRef::as_ref), &mut scratch)));
            self.toolsets.find(server, tool, &mut membership);
            let names = membership.member.iter().filter_map(|number| self.toolsets.name(number)).map(ToolsetName::as_str);
            self.in_toolsets.keep(names, &mut bits, &mut scratch);
            visit(place, &bits, &membership);
        }
    }

    /// For each rule, whether its caller condition matches.
    pub(super) fn held(&self, principal: &Principal) -> Vec<bool> {
        let holds: Vec<bool> = self.callers.iter().map(|side| side.holds(principal)).collect();
        self.caller_of.iter().map(|caller| caller.is_none_or(|caller| holds[caller])).collect()
    }

    /// A fingerprint of the caller's view: equal for callers with the same view under this policy.
    pub fn view_of(&self, principal: &Principal) -> Fingerprint {
        self.attributes.of(principal)
    }

    /// The classes that a caller may see.
    pub fn visible(&self, principal: &Principal, assignment: &Assignment) -> Scope<VisibilityClass> {
        if self.is_open_to(principal) {
            return Scope::All;
        }
        let holds: Vec<bool> = self.callers.iter().map(|side| side.holds(principal)).collect();
        let allowed = assignment
            .programs
            .iter()
            .filter(|(_, program)| program.run(&holds) == Effect::Allow && self.toolsets.admit(&program.toolsets, principal));
        let allowed: BTreeSet<VisibilityClass> = allowed.map(|(class, _)| *class).collect();
        // Tools without a class are visible to nobody. So even a list of all classes must not become "all".
        Scope::Only(allowed)
    }

    /// Reduces the rules that match a tool, and its toolsets, to a program.
    fn program(&self, fitting: &Bits, toolsets: &Bits) -> Program {
        let mut steps: Vec<(usize, Effect)> = Vec::new();
        let mut otherwise = self.default;
        for number in fitting.iter() {
            let effect = self.rules[number].rule.effect;
            match self.caller_of[number] {
                None => {
                    otherwise = effect;
                    break;
                }
                // An earlier rule with the same condition decides.
                Some(caller) if steps.iter().any(|(known, _)| *known == caller) => {}
                Some(caller) => steps.push((caller, effect)),
            }
        }
        // A trailing step with the effect of the final verdict is redundant.
        while steps.last().is_some_and(|(_, effect)| *effect == otherwise) {
            steps.pop();
        }
        Program { steps, otherwise, toolsets: toolsets.clone() }
    }

    /// The class of a program: 0 if everyone may use the tool and it is in no toolset, otherwise a hash.
    fn class(&self, program: &Program) -> VisibilityClass {
        if program.steps.is_empty() && program.otherwise == Effect::Allow && program.toolsets.iter().next().is_none() {
            return VisibilityClass(0);
        }
        let mut bytes = Vec::new();
        for (caller, effect) in &program.steps {
            bytes.extend_from_slice(self.callers[*caller].fingerprint.as_bytes());
            bytes.extend_from_slice(effect.name().as_bytes());
        }
        bytes.extend_from_slice(program.otherwise.name().as_bytes());
        for name in program.toolsets.iter().filter_map(|number| self.toolsets.name(number)) {
            bytes.push(0);
            bytes.extend_from_slice(name.as_str().as_bytes());
        }
        #[expect(clippy::cast_possible_truncation, reason = "a hash: any 32 bits of it will do")]
        VisibilityClass((Fingerprint::of_bytes(&bytes).prefix() as u32).max(1))
    }
}

/// Resolves hash collisions: returns a class that no other program has.
fn settle(mut class: VisibilityClass, program: Program, known: &mut HashMap<VisibilityClass, Program, RandomState>) -> VisibilityClass {
    loop {
        match known.entry(class) {
            Entry::Occupied(taken) if *taken.get() != program => class = VisibilityClass(class.0.wrapping_add(1).max(1)),
            Entry::Occupied(_) => return class,
            Entry::Vacant(free) => {
                free.insert(program);
                return class;
            }
        }
    }
}

impl Program {
    fn run(&self, holds: &[bool]) -> Effect {
        self.steps.iter().find(|(caller, _)| holds[*caller]).map_or(self.otherwise, |(_, effect)| *effect)
    }
}

impl CallerSide {
    fn of(rule: &Rule) -> Self {
        let Rule { principals, groups, models, .. } = rule.conditions();
        Self {
            fingerprint: Fingerprint::of_text(&format!("{principals:?} {groups:?} {models:?}")),
            principals: (!principals.is_empty()).then(|| CallerPatterns::new(&principals)),
            groups: Patterns::new(&groups),
            models: Patterns::new(&models),
        }
    }

    fn holds(&self, principal: &Principal) -> bool {
        self.principals.as_ref().is_none_or(|patterns| principal.names().any(|name| patterns.is_match(&name)))
            && self.groups.hold(principal.groups.iter().map(String::as_str))
            && self.models.hold(principal.model.as_deref())
    }
}
