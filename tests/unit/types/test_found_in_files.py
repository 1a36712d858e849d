from atoll.types import FileChange, FilesDiff, GitChange, GitStatus, SearchMatch, SearchResult


def test_a_search_result_is_its_matches_and_prints_as_grep_does() -> None:
    match = SearchMatch(path="/a", line=3, column=1, text="tide")
    found = SearchResult(matches=[match], files_searched=2)
    assert (list(found), len(found), str(found)) == ([match], 1, "/a:3:tide")
    assert repr(found) == "<SearchResult: 1 matches in 2 files>"
    assert not SearchResult(matches=[])


def test_a_working_tree_is_clean_without_changes() -> None:
    assert GitStatus(branch="main").clean
    assert not GitStatus(changes=[GitChange(path="a", index=".", worktree="M")]).clean


def test_a_diff_is_its_changes() -> None:
    change = FileChange(
        path="/a", change="added", kind_before=None, kind_after="file", bytes_before=None, bytes_after=1
    )
    found = FilesDiff(changes=[change])
    assert (list(found), len(found)) == ([change], 1)
