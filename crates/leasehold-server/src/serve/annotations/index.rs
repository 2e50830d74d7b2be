//! Where the search index of annotations is kept: a directory, or a server.

use std::path::PathBuf;
use std::sync::Arc;

use annotations::index::{OpenSearch, OpenSearchSettings, TantivyIndex, TantivySettings};
use annotations::{Index, StartError};
use clap::Args;

use crate::exit::Failure;

/// Where the index is.
#[derive(Args, Debug, Default)]
pub struct IndexOptions {
    /// Keep the search index in this directory, created if missing. One process writes to it. Without
    /// an index Postgres alone serves searches
    #[arg(
        long,
        env = "LEASEHOLD_ANNOTATIONS_INDEX",
        value_name = "DIR",
        conflicts_with = "annotations_opensearch"
    )]
    pub annotations_index: Option<PathBuf>,
    /// Keep the search index in OpenSearch or Elasticsearch. Put a URL with a password into the
    /// environment
    #[arg(
        long,
        env = "LEASEHOLD_ANNOTATIONS_OPENSEARCH",
        hide_env_values = true,
        value_name = "URL"
    )]
    annotations_opensearch: Option<String>,
    /// Begin index names in OpenSearch with this prefix
    #[arg(
        long,
        env = "LEASEHOLD_ANNOTATIONS_OPENSEARCH_PREFIX",
        value_name = "NAME",
        default_value = "annotations"
    )]
    annotations_opensearch_prefix: String,
}

impl IndexOptions {
    pub fn in_dir(dir: PathBuf) -> Self {
        Self { annotations_index: Some(dir), ..Self::default() }
    }

    /// `works`: this process runs index jobs. One that does not leaves the directory to others.
    pub async fn open(&self, works: bool) -> Result<Option<Index>, Failure> {
        let broken =
            |error: &dyn std::fmt::Display| Failure::from(StartError::Index(error.to_string()));
        if let Some(dir) = &self.annotations_index {
            let settings = TantivySettings { may_write: works, ..TantivySettings::new(dir) };
            let index = TantivyIndex::open(settings).await.map_err(|error| broken(&error))?;
            if works && !index.is_writer() {
                tracing::info!(
                    "another process writes to the index; this one takes over when it is gone"
                );
            }
            let identity = index.identity().await.map_err(|error| broken(&error))?;
            let (asked, path) = (index.clone(), dir.display().to_string());
            let index = Index::new(Arc::new(index)).written_when(move || asked.is_writer());
            return Ok(Some(match identity {
                Some(identity) => index.known_as(identity, path),
                // Another process creates it, and compares its identity.
                None => index,
            }));
        }
        let Some(url) = &self.annotations_opensearch else { return Ok(None) };
        let index =
            OpenSearch::new(OpenSearchSettings::new(url, &self.annotations_opensearch_prefix));
        let index = index.map_err(|error| broken(&error))?;
        let (address, asked) = (index.address().to_owned(), Arc::new(index));
        let index = Index::new(Arc::clone(&asked));
        let ask = move || {
            let asked = Arc::clone(&asked);
            async move { asked.identity().await }
        };
        Ok(Some(index.identified_by(ask, address)))
    }
}
