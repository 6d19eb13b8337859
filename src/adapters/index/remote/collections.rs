//! Manages collections on the cluster: one per contents, complete before an alias points to it.
//!
//! The name of a collection contains the hash of its contents. So if several replicas have the same tools, one builds the
//! collection and the others find it. A replica searches the collection of its own contents by name. The alias points to the
//! collection completed last, for people and for replicas whose collection is gone.

use std::time::Duration;

use qdrant_client::qdrant::{
    CountPointsBuilder, CreateAliasBuilder, CreateFieldIndexCollectionBuilder, DeleteCollectionBuilder, FieldType, PointStruct,
    UpsertPointsBuilder,
};
use tokio::time::{Instant, sleep};

use super::super::contents::CanonicalContents;
use super::super::embedded::IndexProgress;
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

/// Ensures that the cluster has a complete collection of these contents and that the alias points to it. Writes nothing if
/// that is already so. If another replica builds at the same time, both write the same.
///
/// # Errors
/// [`IndexError::Qdrant`]. The next attempt, on any replica, completes a partial build.
pub(super) async fn ensure(
    nodes: &Nodes,
    names: &Names,
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
    if alias_target(nodes, &names.alias).await?.as_deref() == Some(&names.collection) {
        return Ok(());
    }
    let request = &CreateAliasBuilder::new(names.collection.as_str(), names.alias.as_str()).build();
    nodes.call(Instant::now() + CALL, |client| async move { client.create_alias(request.clone()).await }).await.map(drop)
}

async fn alias_target(nodes: &Nodes, alias: &str) -> Result<Option<String>, Fault> {
    let answer = nodes.call(Instant::now() + CALL, |client| async move { client.list_aliases().await }).await?;
    Ok(answer.aliases.into_iter().find(|known| known.alias_name == alias).map(|known| known.collection_name))
}

/// This alias's collections, except the one to which it points.
pub(super) async fn idle(nodes: &Nodes, names: &Names) -> Result<Vec<String>, Fault> {
    let collections = nodes.call(Instant::now() + CALL, |client| async move { client.list_collections().await }).await?;
    let target = alias_target(nodes, &names.alias).await?;
    let names = collections.collections.into_iter().map(|collection| collection.name).filter(|name| names.is_sibling(name));
    Ok(names.filter(|name| Some(name) != target.as_ref()).collect())
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
    fn names_that_can_not_stand_in_a_name_never_meet() {
        assert_eq!(plain("minilm-l6-v2.int8"), "minilm-l6-v2.int8");
        let (one, other) = (plain("Org/Model"), plain("org:model"));
        assert!(one.starts_with("org-model-") && other.starts_with("org-model-") && one != other);
        assert!(plain(&"long".repeat(100)).len() < 80 && !plain("").is_empty());
    }
}
