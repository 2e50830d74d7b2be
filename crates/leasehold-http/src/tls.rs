//! TLS of clients: rustls with ring, the library that the engine's sessions use.
//!
//! reqwest and the S3 client take the provider of the process. Their own default is aws-lc, a second
//! cryptography library, whose C code takes longer to compile than any other dependency.

/// Makes ring the provider of this process, unless it has one. Call it before building a client:
/// reqwest panics without a provider.
pub fn use_ring() {
    // Fails if there is a provider, which the program has then chosen itself.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
