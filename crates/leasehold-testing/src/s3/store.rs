//! The S3 operations on [`Objects`], and their lines in the log.
//!
//! A line is written without awaiting right after its change, on the one thread of the server, so the
//! order of the log is the order of the changes.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::http::Extensions;
use s3s::checksum::ChecksumHasher;
use s3s::dto::{
    CommonPrefix, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput,
    DeletedObject, ETag, ETagCondition, Error, GetObjectInput, GetObjectOutput, HeadBucketInput,
    HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output,
    PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp,
};
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use super::call::{Call, Op};
use super::damage::flipped;
use super::log::{Log, Outcome};
use super::objects::{Attributes, Object, Objects, Only};

/// S3's own limit for a page of a list and for a batch of keys to delete.
const AT_ONCE: usize = 1000;

pub(super) struct Store {
    pub bucket: &'static str,
    pub objects: Arc<Objects>,
    pub log: Arc<Log>,
}

impl Store {
    fn check_bucket(&self, bucket: &str) -> S3Result {
        if bucket == self.bucket { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
    }

    /// Logs what happened to one key.
    fn note(&self, call: &Call, key: &str, outcome: Outcome) {
        call.set_logged();
        self.log.note(call.op, [(key, outcome)]);
    }

    fn missing(&self, call: &Call, key: &str) -> S3Error {
        self.note(call, key, Outcome::Missing);
        s3_error!(NoSuchKey)
    }
}

fn call_of(extensions: &Extensions) -> S3Result<Arc<Call>> {
    extensions.get::<Arc<Call>>().cloned().ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
}

fn disk(error: io::Error) -> S3Error {
    S3Error::internal_error(error)
}

#[async_trait]
impl S3 for Store {
    async fn put_object(
        &self,
        req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let (call, mut input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        let mut sent = read_all(input.body.take()).await?;
        check_sums(&input, &sent)?;
        if call.tamper.corrupt {
            sent = flipped(&sent).into();
        }
        let only = match (&input.if_none_match, &input.if_match) {
            (Some(_), _) => Only::IfMissing,
            (None, Some(ETagCondition::ETag(etag))) => Only::IfEtag(etag.value()),
            _ => Only::Always,
        };
        let attributes = Attributes {
            content_type: input.content_type.clone(),
            metadata: input.metadata.clone().unwrap_or_default(),
        };
        let Some(object) = self.objects.put(&input.key, &sent, attributes, only).map_err(disk)?
        else {
            self.note(&call, &input.key, Outcome::Refused(412));
            return Err(s3_error!(PreconditionFailed));
        };
        self.note(&call, &input.key, call.outcome);
        let e_tag = Some(ETag::Strong(object.etag));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..Default::default() }))
    }

    async fn get_object(
        &self,
        req: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let (call, input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        let Some((object, mut bytes)) = self.objects.get(&input.key).map_err(disk)? else {
            return Err(self.missing(&call, &input.key));
        };
        check_etag(&object, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let mut content_range = None;
        if let Some(range) = input.range {
            let full = bytes.len();
            let range = range.check(full as u64)?;
            content_range = Some(format!("bytes {}-{}/{full}", range.start, range.end - 1));
            let at = |n: u64| usize::try_from(n).unwrap_or(full).min(full);
            bytes = bytes.slice(at(range.start)..at(range.end));
        }
        self.note(&call, &input.key, call.outcome);
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(length(bytes.len() as u64)),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            content_range,
            content_type: object.content_type,
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(Timestamp::from(object.modified)),
            metadata: Some(object.metadata),
            ..Default::default()
        }))
    }

    async fn head_object(
        &self,
        req: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let (call, input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        let Some(object) = self.objects.head(&input.key) else {
            return Err(self.missing(&call, &input.key));
        };
        check_etag(&object, input.if_match.as_ref(), input.if_none_match.as_ref())?;
        self.note(&call, &input.key, call.outcome);
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(length(object.size)),
            content_type: object.content_type,
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(Timestamp::from(object.modified)),
            metadata: Some(object.metadata),
            ..Default::default()
        }))
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let (call, input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        let was_there = self.objects.remove(&input.key).map_err(disk)?;
        let outcome = if was_there { call.outcome } else { Outcome::Missing };
        self.note(&call, &input.key, outcome);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let (call, input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        if input.delete.objects.len() > AT_ONCE {
            return Err(s3_error!(MalformedXML, "more than {} keys", AT_ONCE));
        }
        let quiet = input.delete.quiet.unwrap_or(false);
        let (mut deleted, mut errors, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for object in &input.delete.objects {
            if call.tamper.refuse.as_ref().is_some_and(|part| object.key.contains(part)) {
                lines.push((object.key.as_str(), Outcome::Refused(403)));
                errors.push(Error {
                    code: Some("AccessDenied".to_owned()),
                    key: Some(object.key.clone()),
                    message: Some("as the test wants it".to_owned()),
                    ..Default::default()
                });
                continue;
            }
            let was_there = self.objects.remove(&object.key).map_err(disk)?;
            let outcome = if was_there { call.outcome } else { Outcome::Missing };
            lines.push((object.key.as_str(), outcome));
            if !quiet {
                let key = Some(object.key.clone());
                deleted.push(DeletedObject { key, ..Default::default() });
            }
        }
        call.set_logged();
        self.log.note(call.op, lines);
        let (deleted, errors) = (Some(deleted), (!errors.is_empty()).then_some(errors));
        Ok(S3Response::new(DeleteObjectsOutput { deleted, errors, ..Default::default() }))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let (call, input) = (call_of(&req.extensions)?, req.input);
        self.check_bucket(&input.bucket)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let limit = input.max_keys.and_then(|n| usize::try_from(n).ok()).unwrap_or(AT_ONCE);
        let page = self.objects.list(
            &prefix,
            input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            input.continuation_token.as_deref().max(input.start_after.as_deref()),
            limit.min(AT_ONCE),
            |key| !call.tamper.hide.iter().any(|part| key.contains(part)),
        );
        self.note(&call, &prefix, call.outcome);
        let count = page.objects.len() + page.prefixes.len();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            max_keys: input.max_keys,
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next,
            contents: Some(page.objects.into_iter().map(listed).collect()),
            common_prefixes: Some(
                page.prefixes
                    .into_iter()
                    .map(|prefix| CommonPrefix { prefix: Some(prefix) })
                    .collect(),
            ),
            ..Default::default()
        }))
    }

    async fn head_bucket(
        &self,
        req: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.check_bucket(&req.input.bucket)?;
        call_of(&req.extensions)?.set_logged();
        self.log.note(Op::Other, [("", Outcome::Done)]);
        Ok(S3Response::new(HeadBucketOutput::default()))
    }
}

fn listed(object: Object) -> s3s::dto::Object {
    s3s::dto::Object {
        e_tag: Some(ETag::Strong(object.etag)),
        key: Some(object.key),
        last_modified: Some(Timestamp::from(object.modified)),
        size: Some(length(object.size)),
        ..Default::default()
    }
}

fn length(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The gateway has already limited its size.
async fn read_all(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let Some(body) = body else {
        return Ok(Bytes::new());
    };
    let all = Body::from(body).collect().await;
    all.map(|all| all.to_bytes())
        .map_err(|why| S3Error::with_source(S3ErrorCode::IncompleteBody, why))
}

/// Checks the checksums that a client may send beside the signed one, which was checked before.
fn check_sums(input: &PutObjectInput, sent: &[u8]) -> S3Result {
    let mut hasher = ChecksumHasher {
        sha256: input.checksum_sha256.as_ref().map(|_| Default::default()),
        crc64nvme: input.checksum_crc64nvme.as_ref().map(|_| Default::default()),
        ..Default::default()
    };
    hasher.update(sent);
    let found = hasher.finalize();
    let same = found.checksum_sha256 == input.checksum_sha256
        && found.checksum_crc64nvme == input.checksum_crc64nvme;
    if same { Ok(()) } else { Err(s3_error!(BadDigest)) }
}

fn check_etag(
    object: &Object,
    only: Option<&ETagCondition>,
    unless: Option<&ETagCondition>,
) -> S3Result {
    let is_this = |condition: &ETagCondition| match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(etag) => etag.value() == object.etag,
    };
    if only.is_some_and(|condition| !is_this(condition)) {
        return Err(s3_error!(PreconditionFailed));
    }
    if unless.is_some_and(is_this) {
        return Err(s3_error!(NotModified));
    }
    Ok(())
}
