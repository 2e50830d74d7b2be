//! A store in an S3 bucket.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};

use super::{CALL_LIMIT, Store};
use crate::error::StartError;

/// How to reach a server that speaks S3.
#[derive(Clone, Debug, Default)]
pub struct S3Settings {
    pub bucket: String,
    /// `None`: AWS itself.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
}

impl Store {
    /// Keeps objects in a bucket.
    pub fn s3(settings: &S3Settings) -> Result<Self, StartError> {
        leasehold_http::tls::use_ring();
        // Loading the system's certificates takes a while, and plain HTTP needs none of them.
        let plain = settings.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        let limits = ClientOptions::new()
            .with_timeout(CALL_LIMIT)
            .with_connect_timeout(Duration::from_secs(5))
            .with_no_system_certificates(plain)
            .with_allow_http(true);
        // The queue retries, with a backoff that operators can see.
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&settings.bucket)
            .with_client_options(limits)
            .with_retry(once);
        if let Some(region) = &settings.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &settings.endpoint {
            builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
        }
        if let (Some(key), Some(secret)) = (&settings.access_key, &settings.secret_key) {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
        }
        let objects = builder.build().map_err(|error| StartError::Store(error.to_string()))?;
        let url = match &settings.endpoint {
            Some(endpoint) => format!("{}/{}", endpoint.trim_end_matches('/'), settings.bucket),
            None => format!("https://{}.s3.amazonaws.com", settings.bucket),
        };
        Ok(Self::new(Arc::new(objects), url, None))
    }
}
