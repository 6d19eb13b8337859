# Recipes for who works on Toolsieve. `just` lists them; CONTRIBUTING.md says more.

target := env("CARGO_TARGET_DIR", justfile_directory() / "target")

# Show the recipes
default:
    @just --list

# Check what the project needs, and fetch the crates
setup:
    cargo --version
    node --version
    python3 --version
    command -v cc
    cargo fetch --locked

# Run the tests whose names hold this text
test-one name="git_status":
    cargo test --locked --lib --test it {{ quote(name) }}

# Run the tests of the domain whose names hold this text, without building the service
test-domain name="":
    cargo test --manifest-path tests/domain/Cargo.toml {{ quote(name) }}

# Install what the tests need, and pass all of them
test-all:
    tests/run

# Format, and look for lints
lint:
    cargo fmt
    cargo clippy --locked --all-targets -- -D warnings

# Start the service, on the quickstart's servers unless told otherwise
run *arguments="quickstart":
    cargo run --release --locked -- {{ arguments }}

# Time one part: encoder, index, policy, service or usage
bench name="service":
    cargo bench --locked --bench {{ quote(name) }}

# Generate the reference pages, build the book, and check its links
docs:
    cargo build --release --locked
    python3 docs/reference.py --toolsieve {{ quote(target / "release/toolsieve") }}
    TOOLSIEVE_BIN={{ quote(target / "release/toolsieve") }} tests/docs/run
