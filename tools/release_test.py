#!/usr/bin/env python3
"""Makes releases of a small repository with scripts/release."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "scripts/release"
LOADER = importlib.machinery.SourceFileLoader("release", str(SCRIPT))
release = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", LOADER))
LOADER.exec_module(release)


class ReleaseTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.git("init", "--quiet")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@example.org")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def commit(self, changelog, version="1.2.3"):
        (self.root / "CMakeLists.txt").write_text(f"project(muster VERSION {version} LANGUAGES CXX)\n", encoding="utf-8")
        (self.root / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "all")

    def refused(self, why):
        with self.assertRaisesRegex(release.Refused, why):
            release.release(self.root, "2031-02-03")
        self.assertEqual(self.git("tag"), "")

    def test_the_tag_has_the_notes_and_the_changelog_the_date(self):
        self.commit("# Changelog\n\n## 1.2.3 (unreleased)\n\n* New.\n\n### Fixed\n\n* Old.\n\n## 1.2.2 (2030-01-01)\n\n* Past.\n")
        self.assertEqual(release.release(self.root, "2031-02-03"), "v1.2.3")
        self.assertEqual(self.git("tag", "--list", "--format=%(contents)").strip(),
                         "muster 1.2.3\n\n* New.\n\n### Fixed\n\n* Old.")
        self.assertIn("\n## 1.2.3 (2031-02-03)\n", (self.root / "CHANGELOG.md").read_text(encoding="utf-8"))
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertEqual(self.git("rev-parse", "v1.2.3^{commit}"), self.git("rev-parse", "HEAD"))

    def test_a_release_is_made_once(self):
        self.commit("## 1.2.3 (unreleased)\n\n* New.\n")
        release.release(self.root, "2031-02-03")
        with self.assertRaisesRegex(release.Refused, "v1.2.3 is there already"):
            release.release(self.root, "2031-02-03")

    def test_missing_items_are_reported(self):
        self.commit("## 1.2.2 (unreleased)\n\n* New.\n")
        self.refused("no section '## 1.2.3 .unreleased.'")
        self.commit("## 1.2.3 (unreleased)\n\n## 1.2.2 (2030-01-01)\n")
        self.refused("is empty")
        (self.root / "CHANGELOG.md").write_text("changed\n", encoding="utf-8")
        self.refused("the working tree has changes")


if __name__ == "__main__":
    unittest.main()
