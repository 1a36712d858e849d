"""Git in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from atoll.errors import FileMissingError, GitError
from atoll.sdk._foreign import Part
from atoll.sdk._git import (
    BRANCHES,
    ENV,
    STATUS,
    branches_from,
    check_ref,
    check_url,
    commit_from,
    commits_from,
    directory_of,
    identity,
    log_arguments,
    paths_of,
    status_from,
)
from atoll.types import ExecResult, GitBranch, GitCommit, GitStatus, GuestPath
from atoll.types.internal import check_number, check_text, path_text

if TYPE_CHECKING:
    from atoll.sdk._async.sandbox import AsyncSandbox

_LONG_S = 600.0
_OUTPUT_BYTES = 32 << 20
_SAID_CHARS = 2000
_PATHS = GuestPath | Sequence[GuestPath]


class AsyncGit(Part):
    """Runs the sandbox's own `git` in its repositories. A ``repo`` is the path of a working tree.

    No credentials belong inside: give the sandbox's policy a rule that puts a ``Secret`` into requests to the
    server, see the guide. Git never prompts, so without the rule it fails at once.

    Every method acts as ``user`` (None: the sandbox's default user). Every method raises GitError when git
    fails, FileMissingError if ``repo`` or git itself is missing, ExecTimeoutError after 60 seconds (clone,
    pull and push: 600, or ``timeout_s``), and what every use of a sandbox raises.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._sandbox.id}>"

    async def clone(
        self,
        url: str,
        path: GuestPath | None = None,
        *,
        branch: str | None = None,
        depth: int | None = None,
        timeout_s: float | None = _LONG_S,
        user: str | None = None,
    ) -> str:
        """Clone a repository and return its path.

        Args:
            url: The repository's address. One with a password in it is refused.
            path: A new or empty directory; None takes the repository's name, in the user's home.
            branch: The branch or tag to check out; None means the server's default.
            depth: How many of the newest commits to fetch; None means all.
            timeout_s: Seconds until git is killed; None means no limit.
            user: The user who runs git and owns the files.

        Raises:
            InvalidSpecError: ``url`` or ``branch`` is invalid.
            GitError: Git failed. Nothing is left at ``path``.
        """
        target = directory_of(check_url(url)) if path is None else path_text(path)
        options = [] if branch is None else [f"--branch={check_ref('branch', branch)}"]
        if depth is not None:
            check_number("depth", depth, least=1, whole=True, hint="give how many commits to fetch")
            options.append(f"--depth={depth}")
        place = target.removeprefix("~/") or "."
        await self._run("~", ["clone", *options, "--", url, place], timeout_s=timeout_s, user=user)
        return target

    async def status(self, repo: GuestPath, *, user: str | None = None) -> GitStatus:
        """Return the branch, and the changes since its last commit."""
        env = {"GIT_OPTIONAL_LOCKS": "0"}
        return status_from((await self._run(repo, STATUS, env=env, user=user)).stdout)

    async def add(self, repo: GuestPath, paths: _PATHS = ".", *, user: str | None = None) -> None:
        """Take the content of files into the next commit, deletions included.

        Args:
            repo: The working tree.
            paths: Files and directories, by default all. None of them is taken for an option or a pattern.
            user: The user who runs git.
        """
        await self._run(repo, ["--literal-pathspecs", "add", "--all", *paths_of(paths)], user=user)

    async def commit(
        self,
        repo: GuestPath,
        message: str,
        *,
        author: str | None = None,
        everything: bool = False,
        allow_empty: bool = False,
        user: str | None = None,
    ) -> str:
        """Make a commit of the added changes, and return its id.

        Args:
            repo: The working tree.
            message: The commit's text.
            author: ``Name <email>`` of author and committer; None takes git's configuration.
            everything: Add all changes first, new files included.
            allow_empty: Make a commit even if nothing changed.
            user: The user who runs git.

        Raises:
            GitError: There is nothing to commit, git does not know the author, or a hook refused.
            InvalidSpecError: ``author`` has another form.
        """
        check_text("message", message)
        env = identity(author)
        if everything:
            await self.add(repo, user=user)
        options = ["--allow-empty"] if allow_empty else []
        await self._run(repo, ["commit", "--quiet", *options, "--file=-"], env=env, user=user, stdin=message)
        return commit_from((await self._run(repo, ["rev-parse", "HEAD"], user=user)).stdout)

    async def branches(self, repo: GuestPath, *, user: str | None = None) -> list[GitBranch]:
        """List the local branches, by name."""
        return branches_from((await self._run(repo, BRANCHES, user=user)).stdout)

    async def branch(
        self, repo: GuestPath, name: str, *, start: str | None = None, user: str | None = None
    ) -> None:
        """Make a branch at ``start``, a branch, tag or commit; None means the last commit.

        It is not checked out.
        """
        begins = [] if start is None else [check_ref("start", start)]
        await self._run(repo, ["branch", "--", check_ref("branch", name), *begins], user=user)

    async def checkout(
        self, repo: GuestPath, ref: str, *, create: bool = False, user: str | None = None
    ) -> None:
        """Check out a branch, tag or commit. Changes that would be lost make git refuse.

        Args:
            repo: The working tree.
            ref: The branch, tag or commit.
            create: Make it as a new branch at the last commit.
            user: The user who runs git.
        """
        option = ["-b"] if create else []
        await self._run(repo, ["checkout", "--quiet", *option, check_ref("branch", ref), "--"], user=user)

    async def push(
        self,
        repo: GuestPath,
        remote: str = "origin",
        branch: str | None = None,
        *,
        set_upstream: bool = False,
        timeout_s: float | None = _LONG_S,
        user: str | None = None,
    ) -> None:
        """Send commits to a remote.

        Args:
            repo: The working tree.
            remote: The remote's name.
            branch: The branch; None means the one that is checked out, to the same name there.
            set_upstream: Remember the remote branch, for later pulls.
            timeout_s: Seconds until git is killed; None means no limit.
            user: The user who runs git.

        Raises:
            GitError: The remote refuses, or has commits that are missing here.
        """
        what = "HEAD" if branch is None else check_ref("branch", branch)
        options = ["--set-upstream"] if set_upstream else []
        arguments = ["push", "--quiet", *options, "--", check_ref("remote", remote), what]
        await self._run(repo, arguments, timeout_s=timeout_s, user=user)

    async def pull(
        self,
        repo: GuestPath,
        remote: str = "origin",
        branch: str | None = None,
        *,
        rebase: bool = False,
        author: str | None = None,
        timeout_s: float | None = _LONG_S,
        user: str | None = None,
    ) -> None:
        """Fetch commits from a remote and merge them into the current branch.

        Args:
            repo: The working tree.
            remote: The remote's name.
            branch: The branch there; None means the upstream of the one that is checked out.
            rebase: Put your own commits on top instead of merging.
            author: ``Name <email>`` for the commit of a merge; None takes git's configuration.
            timeout_s: Seconds until git is killed; None means no limit.
            user: The user who runs git.

        Raises:
            GitError: There are conflicts, which ``status`` shows, or no upstream.
        """
        what = [] if branch is None else [check_ref("branch", branch)]
        how = "--rebase" if rebase else "--no-rebase"
        arguments = ["pull", "--quiet", how, "--", check_ref("remote", remote), *what]
        await self._run(repo, arguments, env=identity(author), timeout_s=timeout_s, user=user)

    async def diff(
        self,
        repo: GuestPath,
        ref: str | None = None,
        *,
        staged: bool = False,
        paths: _PATHS = (),
        user: str | None = None,
    ) -> str:
        """Return the changes as a patch.

        Args:
            repo: The working tree.
            ref: Compare with this branch or commit, or two as ``main..work``. None compares with the added
                changes.
            staged: Compare the added changes instead of the files, with ``ref`` or the last commit.
            paths: Only these files and directories; none means all.
            user: The user who runs git.
        """
        arguments = ["--literal-pathspecs", "diff", "--no-ext-diff", "--no-color"]
        arguments += ["--cached"] if staged else []
        arguments += [] if ref is None else [check_ref("ref", ref)]
        return (await self._run(repo, [*arguments, *paths_of(paths)], user=user)).stdout

    async def log(
        self,
        repo: GuestPath,
        ref: str | None = None,
        *,
        limit: int = 20,
        paths: _PATHS = (),
        user: str | None = None,
    ) -> list[GitCommit]:
        """List commits, the newest first.

        Args:
            repo: The working tree.
            ref: The branch or commit to begin at, or a range as ``main..work``. None means the last commit.
            limit: How many to return at most.
            paths: Only commits that changed these files and directories; none means all.
            user: The user who runs git.
        """
        check_number("limit", limit, least=1, whole=True, hint="give how many commits to return")
        begins = None if ref is None else check_ref("ref", ref)
        arguments = ["--literal-pathspecs", *log_arguments(limit, begins, paths_of(paths))]
        return commits_from((await self._run(repo, arguments, user=user)).stdout)

    async def _run(
        self,
        repo: GuestPath,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        timeout_s: float | None = 60.0,
        user: str | None = None,
    ) -> ExecResult:
        try:
            result = await self._sandbox.exec(
                ["git", "--no-pager", *arguments],
                cwd=repo,
                env={**ENV, **(env or {})},
                user=user,
                stdin=stdin,
                timeout_s=timeout_s,
                max_output_bytes=_OUTPUT_BYTES,
            )
        except FileMissingError as error:
            if "git" in error.message and error.remedy is not None and "install" in error.remedy:
                error.remedy = "install git in the sandbox's image: `apt-get install git`"
            raise
        if result.exit_code or result.truncated:
            raise self._failed(next(word for word in arguments if word[0] != "-"), result)
        return result

    def _failed(self, command: str, result: ExecResult) -> GitError:
        said = "\n".join(filter(None, (result.stderr.strip(), result.stdout.strip())))[-_SAID_CHARS:]
        if not result.exit_code:
            said = f"it printed more than {_OUTPUT_BYTES >> 20} MiB"
        hint = None
        if "tell me who you are" in said:
            hint = "give `author='Name <email>'`, or set user.name and user.email with `git config` inside"
        error = GitError(
            f"git {command} ended with {result.exit_code}: {said}", hint=hint, sandbox_id=self._sandbox.id
        )
        error.result = result
        return error
