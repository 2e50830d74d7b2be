//! `#[derive(Job)]`: the name, queue and policy of a job type, beside its struct.

#![forbid(unsafe_code)]

use std::time::Duration;

use jiff::SpanRelativeTo;
use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{DeriveInput, Error, LitBool, LitInt, LitStr, parse_macro_input, spanned::Spanned};

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
/// | `limit_key` | which limit applies to a job; fields are in braces: `"tenant:{account}"` | none |
/// | `max_running` | how many jobs of one limit key run at the same time, in the whole fleet | any number |
/// | `weight` | how many jobs a limit key gets for one job of a key with weight 1 | 1 |
/// | `rate`, `burst` | how many jobs of one key start per time, `"100/1m"`, and how many at once before that | any number, 1 |
/// | `ordered` | `true`: one job of one key at a time, in order | `false` |
/// | `on_failure` | in an ordered key, whether a job that waits for its next attempt blocks those behind it: `"block"` or `"pass"` | `"block"` |
/// | `on_death` | in an ordered key, whether a dead job stops it: `"continue"` or `"stop"` | `"continue"` |
/// | `max_waiting` | how many jobs of one key may wait; an enqueue beyond that is refused | any number |
/// | `debounce` | a job is due after this time without another enqueue of its key, and at the latest after the second: `"5s..1m"` | no debounce |
/// | `throttle` | an enqueue this soon after another one of its key stores nothing | no throttle |
///
/// Limits without a `limit_key` are for all jobs of the name together.
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
    let mut limit_key: Option<LitStr> = None;
    let mut limit = Vec::new();
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
                "limit_key" => limit_key = Some(meta.value()?.parse()?),
                "max_running" => {
                    let value: LitInt = meta.value()?.parse()?;
                    limit.push(quote!(.max_running(#value)));
                }
                "weight" => {
                    let value: LitInt = meta.value()?.parse()?;
                    limit.push(quote!(.weight(#value)));
                }
                "rate" => {
                    let value: LitStr = meta.value()?.parse()?;
                    let text = value.value();
                    let wrong = || Error::new(value.span(), "write the jobs and the time, such as \"100/1m\"");
                    let (jobs, per) = text.split_once('/').ok_or_else(wrong)?;
                    let jobs: i32 = jobs.trim().parse().map_err(|_| wrong())?;
                    let per = duration(&LitStr::new(per, value.span()))?;
                    limit.push(quote!(.rate(#jobs, #per)));
                }
                "burst" => {
                    let value: LitInt = meta.value()?.parse()?;
                    limit.push(quote!(.burst(#value)));
                }
                "ordered" => {
                    let value: LitBool = meta.value()?.parse()?;
                    if value.value {
                        limit.push(quote!(.ordered()));
                    }
                }
                "on_failure" => {
                    let value: LitStr = meta.value()?.parse()?;
                    let choice = match value.value().as_str() {
                        "block" => quote!(Block),
                        "pass" => quote!(Pass),
                        _ => return Err(Error::new(value.span(), "write \"block\" or \"pass\"")),
                    };
                    limit.push(quote!(.on_failure(::leasehold::OnFailure::#choice)));
                }
                "on_death" => {
                    let value: LitStr = meta.value()?.parse()?;
                    let choice = match value.value().as_str() {
                        "continue" => quote!(Continue),
                        "stop" => quote!(Stop),
                        _ => return Err(Error::new(value.span(), "write \"continue\" or \"stop\"")),
                    };
                    limit.push(quote!(.on_death(::leasehold::OnDeath::#choice)));
                }
                "max_waiting" => {
                    let value: LitInt = meta.value()?.parse()?;
                    limit.push(quote!(.max_waiting(#value)));
                }
                "debounce" => {
                    let value: LitStr = meta.value()?.parse()?;
                    let text = value.value();
                    let (wait, most) = text.split_once("..").unwrap_or((&text, ""));
                    let wait = duration(&LitStr::new(wait, value.span()))?;
                    let most = if most.is_empty() {
                        quote!()
                    } else {
                        let most = duration(&LitStr::new(most, value.span()))?;
                        quote!(.debounce_max(#most))
                    };
                    limit.push(quote!(.debounce(#wait) #most));
                }
                "throttle" => {
                    let value = duration(&meta.value()?.parse()?)?;
                    limit.push(quote!(.throttle(#value)));
                }
                _ => {
                    return Err(meta.error(
                        "unknown option; there are name, queue, priority, max_attempts, run_limit, backoff, \
                         limit_key, max_running, weight, rate, burst, ordered, on_failure, on_death, \
                         max_waiting, debounce and throttle",
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
    let limits = limits(&name, limit_key.as_ref(), &limit)?;
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::leasehold::Job for #ident #type_generics #where_clause {
            const NAME: &'static str = #name;
            #queue
            #limits
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

/// The limit key of a job, and the limit that its type declares. A name in braces is a field.
fn limits(name: &LitStr, key: Option<&LitStr>, limit: &[Tokens]) -> Result<Tokens, Error> {
    let Some(key) = key else {
        if limit.is_empty() {
            return Ok(quote!());
        }
        let set = limit.iter();
        return Ok(quote! {
            fn limit_key(&self) -> ::core::option::Option<::std::string::String> {
                ::core::option::Option::Some(::std::string::String::from(#name))
            }
            fn limit() -> ::core::option::Option<::leasehold::Limit> {
                ::core::option::Option::Some(::leasehold::Limit::of_name(#name) #(#set)*)
            }
        });
    };
    let text = key.value();
    let (mut format, mut fields, mut rest) = (String::new(), Vec::new(), text.as_str());
    while let Some((before, after)) = rest.split_once('{') {
        let Some((field, after)) = after.split_once('}') else {
            return Err(Error::new(key.span(), "close the brace, such as \"tenant:{account}\""));
        };
        let field: syn::Member = syn::parse_str(field).map_err(|_| {
            Error::new(key.span(), "write a field in the braces, such as \"tenant:{account}\"")
        })?;
        format.push_str(before);
        format.push_str("{}");
        fields.push(quote!(self.#field));
        rest = after;
    }
    if rest.contains('}') || text.is_empty() {
        return Err(Error::new(key.span(), "write a key such as \"tenant:{account}\""));
    }
    format.push_str(rest);
    let declared = if limit.is_empty() {
        quote!()
    } else {
        // A key without fields is the same for every job.
        let prefix =
            if fields.is_empty() { text.as_str() } else { text.split(':').next().unwrap_or("") };
        if prefix.is_empty() || prefix.contains('{') || (!fields.is_empty() && !text.contains(':'))
        {
            return Err(Error::new(
                key.span(),
                "a limit applies to all keys with one text before the first ':', such as \"tenant:{account}\"",
            ));
        }
        let set = limit.iter();
        quote! {
            fn limit() -> ::core::option::Option<::leasehold::Limit> {
                ::core::option::Option::Some(::leasehold::Limit::new(#prefix) #(#set)*)
            }
        }
    };
    Ok(quote! {
        fn limit_key(&self) -> ::core::option::Option<::std::string::String> {
            ::core::option::Option::Some(::std::format!(#format, #(#fields),*))
        }
        #declared
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
