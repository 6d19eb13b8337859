//! JSON Pointers (RFC 6901).

/// A member's name as a part of a JSON Pointer.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_part_is_escaped_so_that_it_can_be_read_again() {
        assert_eq!(escaped("a/b~1"), "a~1b~01");
        assert_eq!(escaped("plain"), "plain");
    }
}
