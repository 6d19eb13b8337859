//! Manages collections on the cluster: one per contents, complete before an alias points to it.
//!
//! The name of a collection contains the hash of its contents. So if several replicas have the same tools, one builds the
//! collection and the others find it. A replica searches the collection of its own contents by name. The alias points to the
//! collection completed last, for people and for replicas whose collection is gone.
//!
//! Replicas don't know each other. So each marks the collection that it searches with a second alias, which contains the replica and the
//! hour. Collections with such a mark stay. Marks that are no longer renewed expire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use qdrant_client::qdrant::{
    AliasDescription, CountPointsBuilder, CreateAliasBuilder, CreateFieldIndexCollectionBuilder, DeleteCollectionBuilder, FieldType,
    PointStruct, UpsertPointsBuilder,
};
use tokio::time::{Instant, sleep};

use super::super::building::IndexProgress;
use super::super::contents::CanonicalContents;
use super::fault::Fault;
use super::nodes::{CALL, Nodes};
use super::wire::{self, Spread};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::IndexError;

/// Version of the stored format. Increase it with every change of the format.
const SCHEMA: u32 = 2;
/// Number of documents per write, about half a megabyte.
const BATCH: usize = 128;
/// Maximum number of times that the points of a finished build are counted until all nodes have them.
const COUNTS: u32 = 10;
const BETWEEN_COUNTS: Duration = Duration::from_millis(100);
/// What separates the name of the alias from the replica, in a mark.
const USED_BY: &str = "_used_by_";
/// Number of hours for which a mark is valid after its own hour.
const MARKED: u64 = 1;

/// The names of the collection and the alias for given contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) alias: String,
    pub(super) collection: String,
}

impl Names {
    /// Derives the names. Both include the model and its dimension, so vectors of two models never mix.
    pub(super) fn of(prefix: &str, contents: &CanonicalContents) -> Self {
        let model = plain(&contents.model);
        let alias = format!("{prefix}_{model}_{}", contents.dimension);
        let hash = contents.fingerprint.to_string();
        let collection = format!("{alias}_v{SCHEMA}_{}", &hash[..HASH_LENGTH]);
        Self { alias, collection }
    }

    /// The alias with which a replica marks its collection.
    fn mark(&self, replica: &str, hour: u64) -> String {
        format!("{}{USED_BY}{replica}_{hour}", self.alias)
    }

    /// The replica and the hour of a mark; `None` for other aliases.
    fn marked<'a>(&self, alias: &'a str) -> Option<(&'a str, u64)> {
        let (replica, hour) = alias.strip_prefix(self.alias.as_str())?.strip_prefix(USED_BY)?.rsplit_once('_')?;
        Some((replica, hour.parse().ok()?))
    }

    /// Whether a collection with this alias is in use.
    fn keeps(&self, alias: &str, hour: u64) -> bool {
        alias == self.alias || self.marked(alias).is_some_and(|(_, marked)| marked.saturating_add(MARKED) >= hour)
    }

    /// Whether a collection was built for the same alias, by this or another release.
    fn is_sibling(&self, name: &str) -> bool {
        let version_and_hash = name.strip_prefix(self.alias.as_str()).and_then(|rest| rest.strip_prefix("_v")?.split_once('_'));
        version_and_hash.is_some_and(|(version, hash)| {
            !version.is_empty()
                && version.bytes().all(|byte| byte.is_ascii_digit())
                && hash.len() == HASH_LENGTH
                && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }
}

/// Number of hexadecimal digits of the contents hash: 128 bits.
const HASH_LENGTH: usize = 32;

/// Makes a model's name usable in a collection's name. If characters are replaced, a hash is added, so that two models never
/// share a name.
fn plain(model: &str) -> String {
    const LONGEST: usize = 64;
    let is_plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character);
    if model.len() <= LONGEST && !model.is_empty() && model.chars().all(is_plain) {
        return model.to_owned();
    }
    let replaced: String =
        model.to_lowercase().chars().map(|character| if is_plain(character) { character } else { '-' }).take(LONGEST).collect();
    format!("{replaced}-{}", Fingerprint::of_text(model).digits(8))
}

/// Ensures that the cluster has a complete collection of these contents, that the replica has marked it and that the alias points to
/// it. Writes nothing if that is already so. If another replica builds at the same time, both write the same.
///
/// # Errors
/// [`IndexError::Qdrant`]. The next attempt, on any replica, completes a partial build.
pub(super) async fn ensure(
    nodes: &Nodes,
    names: &Names,
    replica: &str,
    contents: &CanonicalContents,
    spread: Spread,
    progress: &(dyn Fn(IndexProgress) + Send + Sync),
) -> Result<(), IndexError> {
    let total = contents.documents.len();
    let points = contents.points();
    let there = count(nodes, &names.collection).await.map_err(|fault| fault.during("look for the index"))?;
    if there != Some(points) {
        if there.is_none() {
            create(nodes, names, contents.dimension, spread).await.map_err(|fault| fault.during("create a collection"))?;
        }
        // Also in an existing collection, because an earlier build may have failed before this step.
        index_fields(nodes, &names.collection).await.map_err(|fault| fault.during("index the fields of a collection"))?;
        for (batch, documents) in contents.documents.chunks(BATCH).enumerate() {
            progress(IndexProgress::Storing { done: batch * BATCH, total });
            write(nodes, names, documents.iter().map(wire::point).collect()).await?;
        }
        for servers in contents.servers.chunks(BATCH) {
            write(nodes, names, servers.iter().map(wire::server_point).collect()).await?;
        }
        complete(nodes, &names.collection, points).await.map_err(|fault| fault.during("find all of its points"))?;
        progress(IndexProgress::Finished);
    }
    mark(nodes, names, replica).await.map_err(|fault| fault.during("mark its collection"))?;
    point_alias(nodes, names).await.map_err(|fault| fault.during("switch its alias"))
}

async fn write(nodes: &Nodes, names: &Names, points: Vec<PointStruct>) -> Result<(), IndexError> {
    let upsert = &UpsertPointsBuilder::new(names.collection.as_str(), points).wait(true).build();
    let write = nodes.call(Instant::now() + CALL, |client| async move { client.upsert_points(upsert.clone()).await });
    write.await.map(drop).map_err(|fault| fault.during("store documents"))
}

/// The number of points in a collection; `None` if the collection does not exist.
async fn count(nodes: &Nodes, collection: &str) -> Result<Option<usize>, Fault> {
    let request = &CountPointsBuilder::new(collection).exact(true).build();
    match nodes.call(Instant::now() + CALL, |client| async move { client.count(request.clone()).await }).await {
        Ok(answer) => Ok(Some(answer.result.map_or(0, |result| usize::try_from(result.count).unwrap_or(usize::MAX)))),
        Err(Fault::NotFound) => Ok(None),
        Err(fault) => Err(fault),
    }
}

async fn create(nodes: &Nodes, names: &Names, dimension: usize, spread: Spread) -> Result<(), Fault> {
    let name = names.collection.as_str();
    let request = &wire::collection(name, dimension, spread);
    if let Err(fault) = nodes.call(Instant::now() + CALL, |client| async move { client.create_collection(request.clone()).await }).await {
        // Another replica may have created it in the meantime.
        let exists = nodes.call(Instant::now() + CALL, |client| async move { client.collection_exists(name).await }).await?;
        if !exists {
            return Err(fault);
        }
    }
    Ok(())
}

/// Creates the field indexes, before any points: Qdrant may refuse to filter by a field without an index.
async fn index_fields(nodes: &Nodes, name: &str) -> Result<(), Fault> {
    for (field, kind) in [(wire::SERVER, FieldType::Keyword), (wire::CLASS, FieldType::Integer)] {
        let request = &CreateFieldIndexCollectionBuilder::new(name, field, kind).wait(true).build();
        nodes.call(Instant::now() + CALL, |client| async move { client.create_field_index(request.clone()).await }).await?;
    }
    Ok(())
}

/// Waits until all points are visible, because replicas of a shard may lag behind.
async fn complete(nodes: &Nodes, collection: &str, total: usize) -> Result<(), Fault> {
    for _ in 0..COUNTS {
        if count(nodes, collection).await? == Some(total) {
            return Ok(());
        }
        sleep(BETWEEN_COUNTS).await;
    }
    Err(Fault::Refused)
}

/// Moves the alias to the new collection in one operation, so that readers see no gap.
async fn point_alias(nodes: &Nodes, names: &Names) -> Result<(), Fault> {
    let is_there = |known: &AliasDescription| known.alias_name == names.alias && known.collection_name == names.collection;
    if aliases(nodes).await?.iter().any(is_there) { Ok(()) } else { create_alias(nodes, names, &names.alias).await }
}

/// Marks a collection as used by a replica, and removes the replica's former mark and expired ones.
pub(super) async fn mark(nodes: &Nodes, names: &Names, replica: &str) -> Result<(), Fault> {
    let (hour, known) = (this_hour(), aliases(nodes).await?);
    let mark = names.mark(replica, hour);
    if !known.iter().any(|known| known.alias_name == mark && known.collection_name == names.collection) {
        create_alias(nodes, names, &mark).await?;
    }
    let is_over = |alias: &str| names.marked(alias).is_some_and(|(marked_by, _)| marked_by == replica || !names.keeps(alias, hour));
    for AliasDescription { alias_name, .. } in known.iter().filter(|known| known.alias_name != mark && is_over(&known.alias_name)) {
        let alias = alias_name.as_str();
        nodes.call(Instant::now() + CALL, |client| async move { client.delete_alias(alias).await }).await?;
    }
    Ok(())
}

async fn create_alias(nodes: &Nodes, names: &Names, alias: &str) -> Result<(), Fault> {
    let request = &CreateAliasBuilder::new(names.collection.as_str(), alias).build();
    nodes.call(Instant::now() + CALL, |client| async move { client.create_alias(request.clone()).await }).await.map(drop)
}

async fn aliases(nodes: &Nodes) -> Result<Vec<AliasDescription>, Fault> {
    let answer = nodes.call(Instant::now() + CALL, |client| async move { client.list_aliases().await }).await?;
    Ok(answer.aliases)
}

/// The number of hours since 1970.
fn this_hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 3_600
}

/// This alias's collections to which neither the alias nor a valid mark points.
pub(super) async fn idle(nodes: &Nodes, names: &Names) -> Result<Vec<String>, Fault> {
    let collections = nodes.call(Instant::now() + CALL, |client| async move { client.list_collections().await }).await?;
    let (hour, aliases) = (this_hour(), aliases(nodes).await?);
    let is_used = |name: &str| aliases.iter().any(|known| known.collection_name == name && names.keeps(&known.alias_name, hour));
    let found = collections.collections.into_iter().map(|collection| collection.name).filter(|name| names.is_sibling(name));
    Ok(found.filter(|name| !is_used(name)).collect())
}

pub(super) async fn remove(nodes: &Nodes, collection: &str) -> Result<(), Fault> {
    let request = &DeleteCollectionBuilder::new(collection).build();
    nodes.call(Instant::now() + CALL, |client| async move { client.delete_collection(request.clone()).await }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::{CanonicalContents, Names, plain};
    use crate::service::ports::IndexContents;

    fn names(model: &str, dimension: usize) -> Names {
        Names::of("toolsieve", &CanonicalContents::of(IndexContents { model: model.into(), dimension, ..IndexContents::default() }))
    }

    #[test]
    fn names_hold_model_dimension_and_contents() {
        let names = names("minilm-l6", 384);
        assert_eq!(names.alias, "toolsieve_minilm-l6_384");
        let hash = names.collection.strip_prefix("toolsieve_minilm-l6_384_v2_").unwrap();
        assert!(hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn only_collections_of_the_same_alias_are_siblings() {
        let ours = names("minilm-l6", 384);
        assert!(ours.is_sibling(&ours.collection));
        assert!(ours.is_sibling(&ours.collection.replace("_v2_", "_v27_")));
        for other in [
            names("minilm-l6", 768).collection,
            names("minilm-l6-v2", 384).collection,
            ours.alias.clone(),
            format!("{}_v2_backup", ours.alias),
            format!("other_{}", ours.collection),
            format!("{}0", ours.collection),
        ] {
            assert!(!ours.is_sibling(&other), "{other}");
        }
    }

    #[test]
    fn a_mark_is_valid_until_the_end_of_the_next_hour() {
        let ours = names("minilm-l6", 384);
        let mark = ours.mark("00ff", 500);
        assert_eq!(mark, "toolsieve_minilm-l6_384_used_by_00ff_500");
        assert_eq!(ours.marked(&mark), Some(("00ff", 500)));
        assert_eq!([499, 500, 501, 502].map(|hour| ours.keeps(&mark, hour)), [true, true, true, false]);
        assert!(ours.keeps(&ours.alias, u64::MAX) && !ours.is_sibling(&mark));
        let others = [names("minilm-l6", 768).mark("00ff", 500), ours.collection.clone(), format!("{}_used_by_somebody", ours.alias)];
        for other in others {
            assert!(ours.marked(&other).is_none() && !ours.keeps(&other, 500), "{other}");
        }
    }

    #[test]
    fn names_that_can_not_stand_in_a_name_never_meet() {
        assert_eq!(plain("minilm-l6-v2.int8"), "minilm-l6-v2.int8");
        let (one, other) = (plain("Org/Model"), plain("org:model"));
        assert!(one.starts_with("org-model-") && other.starts_with("org-model-") && one != other);
        assert!(plain(&"long".repeat(100)).len() < 80 && !plain("").is_empty());
    }
}
