"""The scripts in `deploy/release`, as far as they need no release build."""

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
RELEASE = ROOT / "deploy/release"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]


def run(*command: str | Path, **options: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout  # type: ignore[call-overload]


@pytest.fixture(scope="session")
def build_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("build") / "build"
    run("rustc", "--edition", "2024", "-o", program, ROOT / "build.rs")
    return program


def version(build_script: Path, folder: Path, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], "CARGO_PKG_VERSION": VERSION, **variables}
    printed = run(build_script, cwd=folder, env=environment)
    return next(line for line in printed.splitlines() if "BUILD_VERSION" in line).partition("BUILD_VERSION=")[2]


def test_the_version_contains_the_commit_and_its_date(build_script: Path, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = {"GIT_AUTHOR_DATE": "2026-02-28T23:30:00Z", "GIT_COMMITTER_DATE": "2026-02-28T23:30:00-01:00"}
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return run("git", "-C", tmp_path, *identity, *arguments, env={**os.environ, **who})

    assert version(build_script, tmp_path) == VERSION
    git("init", "--quiet")
    for name in (".commit", ".gitattributes"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "inside").mkdir()
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    commit = git("rev-parse", "HEAD").strip()
    expected = f"{VERSION} ({commit[:9]} 2026-03-01)"
    assert version(build_script, tmp_path) == expected
    assert version(build_script, tmp_path / "inside") == VERSION, "the checkout of another project"
    assert version(build_script, tmp_path, PATH="/nowhere") == VERSION

    # An archive of the sources, on a machine without Git.
    archive, unpacked = tmp_path / "sources.tar", tmp_path / "unpacked"
    git("archive", "--output", str(archive), "HEAD")
    unpacked.mkdir()
    run("tar", "--extract", "--file", archive, cwd=unpacked)
    assert version(build_script, unpacked, PATH="/nowhere") == expected

    named = {"SOURCE_COMMIT": "0123456789abcdef", "SOURCE_DATE_EPOCH": "951782400"}
    assert version(build_script, tmp_path, **named) == f"{VERSION} (012345678 2000-02-29)"


def test_the_build_script_runs_again_only_after_a_commit(build_script: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "CARGO_PKG_VERSION": VERSION}
    printed = run(build_script, cwd=ROOT, env=environment)
    prefix = "cargo::rerun-if-changed="
    reasons = [line.removeprefix(prefix) for line in printed.splitlines() if line.startswith(prefix)]
    assert reasons, "cargo would run the script after every change"
    assert all(Path(reason).name in {"HEAD", ".commit"} for reason in reasons), reasons
    assert all((ROOT / reason).exists() for reason in reasons), "cargo runs the script always if a file is missing"


def test_the_program_says_its_version() -> None:
    said = run(os.environ["TOOLSIEVE_BIN"], "--version")
    assert said.startswith(f"toolsieve {VERSION}")


def test_the_package_contains_what_its_unit_starts(tmp_path: Path) -> None:
    program = tmp_path / "toolsieve"
    program.write_bytes(Path(os.environ["TOOLSIEVE_BIN"]).read_bytes())
    run(RELEASE / "package-deb", program, "amd64", tmp_path, "-Znone")
    package = tmp_path / f"toolsieve_{VERSION}_amd64.deb"
    content = tmp_path / "content"
    run("dpkg-deb", "--raw-extract", package, content)
    control = run("dpkg-deb", "--field", package)
    assert f"Version: {VERSION}\n" in control
    assert "libc6 (>= 2.31)" in control

    unit = (content / "usr/lib/systemd/system/toolsieve.service").read_text()
    start = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).removeprefix("ExecStart=").split()
    postinst = (content / "DEBIAN/postinst").read_text()
    assert os.access(content / start[0].lstrip("/"), os.X_OK)
    for file in [word for word in start if word.startswith("/etc/")]:
        assert (content / file.lstrip("/")).is_file()
    socket = (content / "usr/lib/systemd/system/toolsieve.socket").read_text()
    assert "\nListenStream=127.0.0.1:8000\n" in socket
    assert "docs/src" not in socket, "the package has no such folder"
    for script in ("postinst", "prerm", "postrm"):
        assert "toolsieve.socket" in (content / "DEBIAN" / script).read_text()
    # The account and the key are made when the package is installed.
    assert "\nUser=toolsieve\n" in unit
    assert " toolsieve\n" in next(line + "\n" for line in postinst.splitlines() if "useradd" in line)
    assert "LoadCredential=toolsieve.api_key:/etc/toolsieve/api_key" in unit
    assert ">/etc/toolsieve/api_key" in postinst
    assert "DynamicUser" not in unit

    kept = (content / "DEBIAN/conffiles").read_text().split()
    assert kept == sorted(f"/etc/toolsieve/{file.name}" for file in (content / "etc/toolsieve").iterdir())
    assert (content / "etc/toolsieve/environment").stat().st_mode & 0o777 == 0o600
    for script in ("postinst", "prerm", "postrm"):
        run("sh", "-n", content / "DEBIAN" / script)

    configuration = content / "etc/toolsieve"
    files = ["--config", configuration / "mcp.json", "--settings", configuration / "toolsieve.toml"]
    run(os.environ["TOOLSIEVE_BIN"], "check", *files, env={"HOME": str(tmp_path), "PATH": "/usr/bin"})


def test_the_sbom_is_the_same_on_every_machine(tmp_path: Path) -> None:
    def normalised(folder: str, serial: str) -> str:
        reference = f"path+file://{folder}#0.2.0"
        bom = {
            "serialNumber": f"urn:uuid:{serial}",
            "metadata": {
                "timestamp": "2026-01-01T10:00:00.123Z",
                "component": {
                    "name": "toolsieve",
                    "version": "0.2.0",
                    "bom-ref": reference,
                    "purl": "pkg:cargo/toolsieve@0.2.0?download_url=file://.",
                },
            },
            "dependencies": [{"ref": reference, "dependsOn": ["registry+x#a@1.0.0"]}],
        }
        (tmp_path / "bom.json").write_text(json.dumps(bom))
        variables = {**os.environ, "SOURCE_DATE_EPOCH": "1795538523"}
        return run("python3", RELEASE / "sbom.py", tmp_path / "bom.json", env=variables)

    one = normalised("/home/a/toolsieve", "11111111-1111-4111-8111-111111111111")
    other = normalised("/srv/b/sources", "22222222-2222-4222-8222-222222222222")
    assert one == other
    assert "file:" not in one
    assert json.loads(one)["dependencies"][0]["ref"] == "pkg:cargo/toolsieve@0.2.0"


def test_the_changelog_has_notes_for_this_version() -> None:
    assert f"\n## {VERSION}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_workflow_runs_the_script() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert "deploy/release/run x86_64 aarch64" in commands
    assert (RELEASE / "run").is_file()
