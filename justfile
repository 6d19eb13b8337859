# Recipes for contributors. `just` lists the recipes, and CONTRIBUTING.md explains them.

target := env("CARGO_TARGET_DIR", justfile_directory() / "target")

# List the recipes
default:
    @just --list

# Check that the required tools are installed, and fetch the crates
setup:
    cargo --version
    node --version
    python3 --version
    command -v cc
    cargo fetch --locked

# Run the tests whose names contain this text
test-one name="git_status":
    cargo test --locked --lib --test it {{ quote(name) }}

# Run the domain's tests whose names contain this text, without building the service
test-domain name="":
    cargo test --manifest-path tests/domain/Cargo.toml {{ quote(name) }}

# Install the tests' dependencies, and run all tests
test-all:
    tests/run

# Format the code, and run the lints
lint:
    cargo fmt
    cargo clippy --locked --all-targets -- -D warnings

# Start the service, by default with the quickstart's servers
run *arguments="quickstart":
    cargo run --release --locked -- {{ arguments }}

# Run one benchmark: encoder, index, learning, policy, service, usage or words
bench name="service":
    cargo bench --locked --bench {{ quote(name) }}

# Generate the reference pages, build the book, and check its links
docs:
    cargo build --release --locked
    python3 docs/reference.py --toolsieve {{ quote(target / "release/toolsieve") }}
    TOOLSIEVE_BIN={{ quote(target / "release/toolsieve") }} tests/docs/run

# Make the files of a release in dist/, for x86_64 and aarch64 if you name both
release *arguments:
    deploy/release/run {{ arguments }}
