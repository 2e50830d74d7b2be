//! The settings that both services have, under the prefix of each: the base of links, limits per client
//! address, trusted proxies, and the operator's token.

/// Limits per client address of a service, to be replaced by those of the command line.
pub struct LimitsMut<'a> {
    pub writes_per_second: &'a mut u32,
    pub write_burst: &'a mut u32,
    pub reads_per_second: &'a mut u32,
    pub read_burst: &'a mut u32,
    pub trusted_proxies: &'a mut usize,
}

/// Declares the shared options of one service. A macro, because clap wants every name as a constant:
/// `$flag` and `$variable` are the prefix, `$write` and `$WRITE` name what clients send.
macro_rules! web_options {
    (
        $options:ident, $flag:literal, $variable:literal,
        write: $write:literal, $WRITE:literal, limits: $writes:literal, $reads:literal,
        host: $host:literal, operator: $operator:literal
    ) => {
        /// Options that both services have.
        #[derive(clap::Args, Debug, Default)]
        #[group(skip)]
        pub struct $options {
            #[arg(
                id = concat!($flag, "_base_url"),
                long = concat!($flag, "-base-url"),
                env = concat!("LEASEHOLD_", $variable, "_BASE_URL"),
                value_name = "URL",
                help = concat!(
                    "Begin links with this URL, such as https://", $host,
                    ", without a path. Default: http:// and the address of the listener"
                )
            )]
            base_url: Option<String>,
            #[arg(
                id = concat!($flag, "_", $write, "s_per_second"),
                long = concat!($flag, "-", $write, "s-per-second"),
                env = concat!("LEASEHOLD_", $variable, "_", $WRITE, "S_PER_SECOND"),
                value_name = "NUMBER",
                help = concat!("Limit ", $writes, " per second from one address; 0: no limit [default: 10]")
            )]
            writes_per_second: Option<u32>,
            #[arg(
                id = concat!($flag, "_", $write, "_burst"),
                long = concat!($flag, "-", $write, "-burst"),
                env = concat!("LEASEHOLD_", $variable, "_", $WRITE, "_BURST"),
                value_name = "NUMBER",
                help = concat!("Limit ", $writes, " at once from one address [default: 50]")
            )]
            write_burst: Option<u32>,
            #[arg(
                id = concat!($flag, "_reads_per_second"),
                long = concat!($flag, "-reads-per-second"),
                env = concat!("LEASEHOLD_", $variable, "_READS_PER_SECOND"),
                value_name = "NUMBER",
                help = concat!("Limit ", $reads, " per second from one address; 0: no limit [default: 60]")
            )]
            reads_per_second: Option<u32>,
            #[arg(
                id = concat!($flag, "_read_burst"),
                long = concat!($flag, "-read-burst"),
                env = concat!("LEASEHOLD_", $variable, "_READ_BURST"),
                value_name = "NUMBER",
                help = concat!("Limit ", $reads, " at once from one address [default: 200]")
            )]
            read_burst: Option<u32>,
            /// Trust this many proxies in front that add to X-Forwarded-For. With 0 the header is
            /// ignored: behind a proxy all clients then share one address, its limits and its
            /// idempotency keys [default: 0]
            #[arg(
                id = concat!($flag, "_trusted_proxies"),
                long = concat!($flag, "-trusted-proxies"),
                env = concat!("LEASEHOLD_", $variable, "_TRUSTED_PROXIES"),
                value_name = "NUMBER"
            )]
            trusted_proxies: Option<usize>,
            #[arg(
                id = concat!($flag, "_operator_token"),
                long = concat!($flag, "-operator-token"),
                env = concat!("LEASEHOLD_", $variable, "_OPERATOR_TOKEN"),
                hide_env_values = true,
                value_name = "TOKEN",
                help = concat!(
                    "Let a client with this token ", $operator, "; 16 to 128 characters. Put it into \
                     the environment: every user of the machine can read a command line \
                     [default: none]"
                )
            )]
            pub operator_token: Option<String>,
        }

        impl $options {
            /// Replaces what the command line sets.
            pub fn apply(
                &self,
                base_url: &mut String,
                limits: $crate::serve::web_options::LimitsMut<'_>,
            ) {
                use $crate::serve::given::set;
                set(base_url, self.base_url.clone());
                set(limits.writes_per_second, self.writes_per_second);
                set(limits.write_burst, self.write_burst);
                set(limits.reads_per_second, self.reads_per_second);
                set(limits.read_burst, self.read_burst);
                set(limits.trusted_proxies, self.trusted_proxies);
            }
        }
    };
}

pub(super) use web_options;
