//! The S3 server for tests, used through the client of the products.

mod damage;
mod faults;
mod held;
mod service;
mod suite;

use std::time::Duration;

use bytes::Bytes;
use leasehold_testing::S3Server;
use leasehold_testing::s3::{Entry, Op, Outcome};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};

/// A client without retries, so that a test sees every fault.
fn client(endpoint: &str, bucket: &str, key: &str, secret: &str) -> AmazonS3 {
    // The S3 client panics in a process without a provider for TLS. Fails if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let no_retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_bucket_name(bucket)
        .with_region(S3Server::REGION)
        .with_access_key_id(key)
        .with_secret_access_key(secret)
        .with_virtual_hosted_style_request(false)
        .with_retry(no_retries)
        .with_client_options(
            // Reading the system's certificates takes longer than most of these tests.
            ClientOptions::new()
                .with_allow_http(true)
                .with_no_system_certificates(true)
                .with_timeout(Duration::from_secs(120)),
        )
        .build()
        .expect("a client")
}

fn client_of(s3: &S3Server) -> AmazonS3 {
    client(&s3.endpoint(), S3Server::BUCKET, S3Server::ACCESS_KEY, S3Server::SECRET_KEY)
}

fn setup() -> (S3Server, AmazonS3) {
    let s3 = S3Server::start().expect("starts");
    let store = client_of(&s3);
    (s3, store)
}

async fn put(store: &impl ObjectStore, key: &str, text: &'static str) -> object_store::Result<()> {
    store.put(&key.into(), PutPayload::from_static(text.as_bytes())).await.map(drop)
}

async fn get(store: &impl ObjectStore, key: &str) -> object_store::Result<Bytes> {
    store.get(&key.into()).await?.bytes().await
}

/// Returns the log lines about one key.
fn about(s3: &S3Server, key: &str) -> Vec<(Op, Outcome)> {
    let entries = s3.log().into_iter().filter(|entry| entry.key == key);
    entries.map(|Entry { op, outcome, .. }| (op, outcome)).collect()
}
