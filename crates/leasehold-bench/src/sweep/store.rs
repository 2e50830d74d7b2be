//! The store of the objects: a directory, or an S3 server in its own process.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use indicatif::ProgressBar;

use super::layout::Layout;
use super::objects;
use super::s3::S3Child;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Files in a directory
    Local,
    /// The S3 server of the tests, over HTTP
    S3,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::S3 => "s3",
        }
    }
}

/// A store with an object for every content.
pub enum Target {
    Local(PathBuf),
    S3(Box<S3Child>),
}

impl Target {
    /// Fills a store. Its files lie below `dir` and are removed with it.
    pub async fn lay(kind: Kind, dir: &Path, layout: &Layout, bar: &ProgressBar) -> Result<Self> {
        match kind {
            Kind::Local => {
                objects::Laying::start(dir, layout, bar)?.ended().await?;
                Ok(Self::Local(dir.to_path_buf()))
            }
            Kind::S3 => Ok(Self::S3(Box::new(S3Child::start(dir, layout, bar).await?))),
        }
    }

    /// Opens the store for the service.
    pub fn store(&self) -> Result<pastes::Store> {
        Ok(match self {
            Self::Local(dir) => pastes::Store::local(dir)?,
            Self::S3(server) => pastes::Store::s3(&server.settings())?,
        })
    }

    /// Returns the number of objects in the store, and how many of these keys are missing.
    pub async fn left(&mut self, keys: HashSet<String>) -> Result<(u64, u64)> {
        match self {
            Self::Local(dir) => {
                let dir = dir.clone();
                tokio::task::spawn_blocking(move || objects::left(&dir, &keys)).await?
            }
            Self::S3(server) => server.left(keys).await,
        }
    }
}
