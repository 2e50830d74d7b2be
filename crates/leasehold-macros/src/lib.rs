//! `#[derive(Job)]`: the name, queue and policy of a job type, beside its struct.

#![forbid(unsafe_code)]

use std::time::Duration;

use jiff::SpanRelativeTo;
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{DeriveInput, Error, LitInt, LitStr, parse_macro_input, spanned::Spanned};

/// Implements `leasehold::Job` for a struct that serde serializes to an object, or for a unit struct.
///
/// ```ignore
/// #[derive(Job, Serialize, Deserialize)]
/// #[job(name = "email.send", queue = "mail", max_attempts = 8, run_limit = "30s", backoff = "2s..1h")]
/// struct SendEmail {
///     to: String,
/// }
/// ```
///
/// | option | meaning | default |
/// |---|---|---|
/// | `name` | stored with each job, and selects its handler; choose it once | required |
/// | `queue` | where jobs go unless an enqueue names another queue | `"default"` |
/// | `priority` | lower runs first | 0 |
/// | `max_attempts` | how often a job may start before it is dead | the queue's, 25 |
/// | `run_limit` | how long a handler may run | the queue's, 1 h |
/// | `backoff` | the first wait after a failure, doubling up to the second: `"2s..1h"` | the queue's, `1s..1h` |
///
/// Times are such as `250ms`, `30s`, `1h30m` or `1d`.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<Tokens, Error> {
    let mut name: Option<LitStr> = None;
    let mut queue = quote!();
    let mut policy = Vec::new();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("job")) {
        attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match key.as_str() {
                "name" => name = Some(meta.value()?.parse()?),
                "queue" => {
                    let value: LitStr = meta.value()?.parse()?;
                    queue = quote!(const QUEUE: &'static str = #value;);
                }
                "priority" => {
                    let value: syn::Expr = meta.value()?.parse()?;
                    policy.push(quote!(policy.priority = #value;));
                }
                "max_attempts" => {
                    let value: LitInt = meta.value()?.parse()?;
                    policy.push(quote!(policy.max_attempts = Some(#value);));
                }
                "run_limit" => {
                    let value = duration(&meta.value()?.parse()?)?;
                    policy.push(quote!(policy.run_limit = Some(#value);));
                }
                "backoff" => {
                    let value: LitStr = meta.value()?.parse()?;
                    let text = value.value();
                    let Some((first, cap)) = text.split_once("..") else {
                        return Err(Error::new(value.span(), "write the first wait and the longest, such as \"2s..1h\""));
                    };
                    let first = duration(&LitStr::new(first, value.span()))?;
                    let cap = duration(&LitStr::new(cap, value.span()))?;
                    policy.push(quote!(policy.backoff = Some(::leasehold::Backoff::doubling(#first, #cap));));
                }
                _ => {
                    return Err(meta.error(
                        "unknown option; there are name, queue, priority, max_attempts, run_limit and backoff",
                    ));
                }
            }
            Ok(())
        })?;
    }
    let Some(name) = name else {
        return Err(Error::new(
            input.span(),
            "a job needs a stable name: #[job(name = \"email.send\")]",
        ));
    };
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::leasehold::Job for #ident #type_generics #where_clause {
            const NAME: &'static str = #name;
            #queue
            #[allow(clippy::field_reassign_with_default)]
            fn policy() -> ::leasehold::Policy {
                #[allow(unused_mut)]
                let mut policy = ::leasehold::Policy::default();
                #(#policy)*
                policy
            }
        }
    })
}

/// Reads `250ms`, `30s`, `1h30m`: jiff's friendly format, as the commands read it.
fn duration(value: &LitStr) -> Result<Tokens, Error> {
    let read = || {
        let span: jiff::Span = value.value().trim().parse().ok()?;
        let time = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        Duration::try_from(time).ok()
    };
    let Some(time) = read() else {
        return Err(Error::new(
            value.span(),
            "write a time such as \"250ms\", \"30s\", \"1h30m\" or \"1d\"",
        ));
    };
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    Ok(quote!(::std::time::Duration::new(#seconds, #nanos)))
}
