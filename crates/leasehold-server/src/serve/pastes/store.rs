//! Where the content of pastes is kept: a directory, or a bucket.

use std::path::PathBuf;

use clap::Args;
use pastes::{S3Settings, Store};

use crate::exit::Failure;

/// Options of the store.
#[derive(Args, Debug)]
#[command(next_help_heading = "Store")]
pub struct StoreOptions {
    /// Keep content in files below this directory, created if missing
    #[arg(long, env = "LEASEHOLD_STORE", value_name = "DIR", conflicts_with = "s3_bucket")]
    pub store: Option<PathBuf>,
    /// Keep content in this bucket. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    /// AWS_ENDPOINT_URL apply, too
    #[arg(long, env = "LEASEHOLD_S3_BUCKET", value_name = "NAME")]
    s3_bucket: Option<String>,
    /// Connect to the bucket at this endpoint, such as http://127.0.0.1:9000. Default: AWS
    #[arg(long, env = "LEASEHOLD_S3_ENDPOINT", value_name = "URL", requires = "s3_bucket")]
    s3_endpoint: Option<String>,
    /// Set the region of the bucket
    #[arg(long, env = "LEASEHOLD_S3_REGION", value_name = "REGION", requires = "s3_bucket")]
    s3_region: Option<String>,
    /// Authenticate with this access key
    #[arg(long, env = "LEASEHOLD_S3_ACCESS_KEY", value_name = "KEY", requires = "s3_secret_key")]
    s3_access_key: Option<String>,
    /// Authenticate with this secret of the access key; put it into the environment
    #[arg(
        long,
        env = "LEASEHOLD_S3_SECRET_KEY",
        hide_env_values = true,
        value_name = "SECRET",
        requires = "s3_access_key"
    )]
    s3_secret_key: Option<String>,
}

impl StoreOptions {
    pub fn is_named(&self) -> bool {
        self.store.is_some() || self.s3_bucket.is_some()
    }

    pub fn open(self) -> Result<Store, Failure> {
        match (self.store, self.s3_bucket) {
            (Some(dir), None) => Ok(Store::local(&dir)?),
            (None, Some(bucket)) => Ok(Store::s3(&S3Settings {
                bucket,
                endpoint: self.s3_endpoint,
                region: self.s3_region,
                access_key: self.s3_access_key,
                secret_key: self.s3_secret_key,
            })?),
            (Some(_), Some(_)) => Err(Failure::usage("name one store: --store or --s3-bucket")),
            (None, None) => Err(Failure::usage("no store is named for the content of pastes")
                .hint("keep it in files: --store DIR; or in a bucket: --s3-bucket NAME")),
        }
    }
}
