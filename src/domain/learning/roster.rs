//! The people of a scope. What is remembered of a person holds the person's number instead of the name.

use std::sync::Arc;

use indexmap::IndexSet;

/// People by number, with how much is remembered of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    names: IndexSet<Arc<str>>,
    pub(super) counts: Vec<usize>,
}

impl Roster {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, person: usize) -> &Arc<str> {
        &self.names[person]
    }

    /// How much is remembered of a person.
    pub(super) fn count_of(&self, person: &str) -> usize {
        self.names.get_index_of(person).map_or(0, |person| self.counts[person])
    }

    /// Counts one more, and returns the person's number.
    pub(super) fn add(&mut self, person: &Arc<str>) -> usize {
        let person = self.names.insert_full(Arc::clone(person)).0;
        self.counts.resize(self.names.len(), 0);
        self.counts[person] += 1;
        person
    }

    /// Counts one less. After the last one, the person is forgotten, and this number becomes that of the person with the returned number.
    pub(super) fn remove(&mut self, person: usize) -> Option<usize> {
        self.counts[person] -= 1;
        (self.counts[person] == 0).then(|| {
            self.names.swap_remove_index(person);
            self.counts.swap_remove(person);
            self.names.len()
        })
    }
}
