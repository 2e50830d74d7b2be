use super::*;
use leasehold_testing::s3::Rule;

const TEXT: &str = "the bytes that were sent";

#[tokio::test]
async fn flipped_byte_keeps_the_length() {
    let (s3, store) = setup();
    put(&store, "k", TEXT).await.unwrap();
    s3.add(Rule::on(Op::Get).flip_byte());
    let found = get(&store, "k").await.unwrap();
    assert_eq!(found.len(), TEXT.len());
    let different = found.iter().zip(TEXT.bytes()).filter(|(a, b)| **a != *b).count();
    assert_eq!(different, 1);
    assert_eq!(get(&store, "k").await.unwrap(), TEXT);
    assert_eq!(about(&s3, "k")[1..], [(Op::Get, Outcome::Damaged), (Op::Get, Outcome::Done)]);
}

#[tokio::test]
async fn shortened_response_has_a_matching_length() {
    let (s3, store) = setup();
    put(&store, "k", TEXT).await.unwrap();
    s3.add(Rule::on(Op::Get).shorten());
    let found = get(&store, "k").await.unwrap();
    assert_eq!(found, TEXT.as_bytes()[..TEXT.len() / 2]);
}

#[tokio::test]
async fn cut_response_is_an_error_for_the_client() {
    let (s3, store) = setup();
    put(&store, "k", TEXT).await.unwrap();
    let cut = s3.add(Rule::on(Op::Get).cut_inside());
    assert!(get(&store, "k").await.is_err());
    assert_eq!(s3.fired(cut), 1);
}

#[tokio::test]
async fn stored_bytes_can_differ_from_the_sent_ones() {
    let (s3, store) = setup();
    s3.add(Rule::on(Op::Put).corrupt());
    put(&store, "k", TEXT).await.unwrap();
    let stored = s3.read_object("k").unwrap().unwrap();
    assert_eq!(stored.len(), TEXT.len());
    assert_ne!(stored, TEXT);
    assert_eq!(get(&store, "k").await.unwrap(), stored);
    assert_eq!(about(&s3, "k")[0], (Op::Put, Outcome::Damaged));
}

#[tokio::test]
async fn fault_rule_reports_success_without_storing() {
    let (s3, store) = setup();
    s3.add(Rule::on(Op::Put).error_in_200());
    put(&store, "k", TEXT).await.unwrap();
    assert_eq!(s3.keys(), Vec::<String>::new());
    s3.put_object("k", TEXT.as_bytes()).unwrap();
    s3.add(Rule::on(Op::Get).error_in_200());
    let found = get(&store, "k").await.unwrap_or_default();
    assert_ne!(found, TEXT);
    assert_eq!(about(&s3, "k"), [(Op::Put, Outcome::Pretended), (Op::Get, Outcome::Pretended)]);
}
