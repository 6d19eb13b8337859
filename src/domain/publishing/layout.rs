//! Where the service's addresses begin, and under which names its tools are published there.

use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::document::encoded;

/// The addresses of documents and tools. The default is our own: everything below `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The path under which a proxy shows the service, such as `/tools`; empty for none. Requests come with it or
    /// without it, addresses that we write have it.
    pub root_path: String,
    /// What the servers' paths begin with, such as `/mcp-servers`; empty for none.
    pub prefix: String,
    /// The one server that lives at `/` itself.
    pub single: Option<ServerName>,
    pub naming: Naming,
}

/// How the tools in the document of one server are named. The document of all tools needs names that tell servers
/// apart, so there it is always [`Naming::Flat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// `<server>__<tool>`, with the meta-tools.
    #[default]
    Flat,
    /// As mcpo names them: `tool_<tool>_post`, and no tool beside the server's.
    Mcpo,
}

impl Layout {
    /// What the paths of a server's document are relative to.
    #[must_use]
    pub fn server(&self, server: &ServerName) -> String {
        if self.single.as_ref() == Some(server) {
            return self.root_path.clone();
        }
        format!("{}{}/{}", self.root_path, self.prefix, encoded(server.as_str()))
    }

    /// The same below a further path.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        Self { root_path: format!("{}{path}", self.root_path), ..self.clone() }
    }

    /// The path without [`Layout::root_path`], if it begins with that.
    #[must_use]
    pub fn without_root<'a>(&self, path: &'a str) -> Option<&'a str> {
        if self.root_path.is_empty() {
            return None;
        }
        path.strip_prefix(&self.root_path).filter(|rest| rest.starts_with('/'))
    }

    /// Whether a path is that of a document or of the page that shows one.
    #[must_use]
    pub fn is_document(&self, path: &str) -> bool {
        let is_page = |path: &str| matches!(path, "openapi.json" | "docs") || path.starts_with("docs/");
        let Some(path) = path.strip_prefix('/') else { return false };
        if is_page(path) {
            return true;
        }
        let prefix = self.prefix.strip_prefix('/').map(|prefix| format!("{prefix}/")).unwrap_or_default();
        let below_server = path.strip_prefix(&prefix).and_then(|path| path.split_once('/'));
        self.single.is_none() && below_server.is_some_and(|(server, rest)| !server.is_empty() && is_page(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Naming};

    #[test]
    fn documents_are_told_from_tools() {
        let layout = Layout { prefix: "/pre".into(), naming: Naming::Mcpo, ..Layout::default() };
        for path in ["/openapi.json", "/docs", "/docs/x.css", "/pre/a/openapi.json", "/pre/a/docs", "/pre/a/docs/"] {
            assert!(layout.is_document(path), "{path}");
        }
        for path in ["/", "/a/openapi.json", "/pre/openapi.json", "/pre/a/b/openapi.json", "/pre/a/docsx", "/v1/filter", "openapi.json"] {
            assert!(!layout.is_document(path), "{path}");
        }
    }

    #[test]
    fn the_root_path_is_optional_in_requests() {
        let layout = Layout { root_path: "/r".into(), ..Layout::default() };
        assert_eq!(layout.without_root("/r/a"), Some("/a"));
        assert_eq!(layout.without_root("/rest/a"), None);
        assert_eq!(layout.without_root("/a"), None);
        assert_eq!(Layout::default().without_root("/a"), None);
        assert_eq!(layout.server(&"a b".into()), "/r/a%20b");
    }
}
