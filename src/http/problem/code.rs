//! The table of all error codes.

use actix_web::http::StatusCode;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Caller,
    Remote,
    Us,
}

macro_rules! codes {
    ($($code:ident $name:literal $status:ident $fault:ident $title:literal,)*) => {
        /// All errors that a response can contain.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($code,)* }

        impl Code {
            #[cfg(test)]
            const ALL: &[Code] = &[$(Code::$code,)*];

            /// The error's `code` in responses, which stays stable for programs.
            pub(crate) fn name(self) -> &'static str { match self { $(Self::$code => $name,)* } }

            pub(crate) fn status(self) -> StatusCode { match self { $(Self::$code => StatusCode::$status,)* } }

            pub(crate) fn title(self) -> &'static str { match self { $(Self::$code => $title,)* } }

            pub(crate) fn fault(self) -> Fault { match self { $(Self::$code => Fault::$fault,)* } }
        }
    };
}

codes! {
    NotJson            "not_json"            BAD_REQUEST            Caller "The body is not JSON",
    Unauthorized       "unauthorized"        UNAUTHORIZED           Caller "The key is missing or wrong",
    WrongKey           "wrong_key"           FORBIDDEN              Caller "The key is wrong",
    ForeignOrigin      "foreign_origin"      FORBIDDEN              Caller "The request comes from another site's page",
    AdminNeeded        "admin_needed"        FORBIDDEN              Caller "Only administrators may do this",
    ReadOnlyKey        "read_only_key"       FORBIDDEN              Caller "The key may only read",
    CommandsOff        "commands_off"        FORBIDDEN              Caller "The API may not add programs",
    UserNeeded         "user_needed"         FORBIDDEN              Caller "The request needs a user or a named key",
    CredentialsMissing "credentials_missing" FORBIDDEN              Caller "The MCP server needs the caller's credentials",
    SignInNeeded       "sign_in_needed"      FORBIDDEN              Caller "The MCP server needs the user to sign in",
    SecretsOff         "secrets_off"         NOT_IMPLEMENTED        Caller "The service is not set up to store secrets",
    NotFound           "not_found"           NOT_FOUND              Caller "The requested resource does not exist",
    MethodNotAllowed   "method_not_allowed"  METHOD_NOT_ALLOWED     Caller "This address does not support the method",
    Conflict           "conflict"           CONFLICT               Caller "The request conflicts with the current state",
    ManagedByFile      "managed_by_file"    CONFLICT               Caller "A file manages this entry, so the API can't change it",
    NothingToLoadInto  "nothing_to_load_into" CONFLICT              Caller "There is no session or chat to load tools into",
    NotLoaded          "not_loaded"          CONFLICT               Caller "The toolset is not loaded",
    OfferUnknown       "offer_unknown"       CONFLICT               Caller "The offer is unknown",
    InitialToolset     "initial_toolset"     CONFLICT               Caller "The session started with this toolset, so it stays loaded",
    PreconditionFailed "precondition_failed" PRECONDITION_FAILED   Caller "The resource has changed in the meantime",
    NoUpgrade          "no_upgrade"          BAD_REQUEST            Caller "This address supports only HTTP",
    BodyTooSlow        "body_too_slow"       REQUEST_TIMEOUT        Caller "The body did not arrive in time",
    BodyTooLarge       "body_too_large"      PAYLOAD_TOO_LARGE      Caller "The body is too large",
    EncodedBody        "encoded_body"        UNSUPPORTED_MEDIA_TYPE Caller "The body is encoded",
    Overloaded         "overloaded"          SERVICE_UNAVAILABLE    Caller "The service is receiving too much data at once",
    InvalidArguments   "invalid_arguments"   UNPROCESSABLE_ENTITY   Caller "The arguments do not fit the tool's schema",
    InvalidRequest     "invalid_request"     UNPROCESSABLE_ENTITY   Caller "The request is invalid",
    RateLimited        "rate_limited"        TOO_MANY_REQUESTS      Caller "Too many requests",
    ToolError          "tool_error"          BAD_GATEWAY            Remote "The tool reported an error",
    ServerError        "server_error"        BAD_GATEWAY            Remote "The MCP server returned an error",
    ResultTooLarge     "result_too_large"    BAD_GATEWAY            Remote "The tool's result is too large",
    ServerUnavailable  "server_unavailable"  SERVICE_UNAVAILABLE    Remote "The MCP server is not available",
    Timeout            "timeout"             GATEWAY_TIMEOUT        Remote "The MCP server did not respond in time",
    StoreUnavailable   "store_unavailable"   SERVICE_UNAVAILABLE    Us     "The store is not available at the moment",
    Internal           "internal"            INTERNAL_SERVER_ERROR  Us     "An internal error occurred",
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
