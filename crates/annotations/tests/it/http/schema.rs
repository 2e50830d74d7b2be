//! Checks the service against its OpenAPI document with generated requests.

use annotations::{Settings, Token};
use leasehold_testing::http::schemathesis::Checks;

use super::{Site, note};
use crate::fixture::settings;

const OPERATOR: &str = "operator-token-0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn h2_generated_requests_get_only_documented_responses() {
    let site = Site::with(Settings { operator_token: Token::parse(OPERATOR), ..settings() }).await;
    let token = site.token("sophia").await;
    site.save(&token, &note("x")).await;
    Checks {
        tokens: &[("token", &token), ("operator", OPERATOR)],
        fine: &["400", "401", "403", "404", "409", "412", "413", "422"],
    }
    .run(&site)
    .await;
}
