"""The configuration file."""

import pytest

import sluice


def test_file_sets_what_it_names(tmp_path):
    (tmp_path / "gpu.yaml").write_text("preemption: host\nlongest_stop_ms: 0\n")
    assert sluice.Config.from_file(tmp_path / "gpu.yaml") == sluice.Config(preemption="host", longest_stop_ms=0)
    (tmp_path / "empty.yaml").write_text("")
    assert sluice.Config.from_file(tmp_path / "empty.yaml") == sluice.Config()


def test_all_mistakes_are_named_at_once():
    text = "hint_us: -1\nlongest_stop_ms: true\npreemption: full\nhint_ms: 3\n5: x\n"
    with pytest.raises(sluice.ConfigError) as error:
        sluice.Config.from_text(text, "gpu.yaml")
    for part in ("gpu.yaml", "hint_us is -1", "longest_stop_ms is True", "preemption is 'full'", "'hint_ms'", "key 5"):
        assert part in str(error.value)


@pytest.mark.parametrize("text", ["- a", "5", "a: [", "preemption: [device]", "? [a]\n: b", "{preemption: {a: b}}"])
def test_what_is_no_configuration_is_refused(text):
    with pytest.raises(sluice.ConfigError):
        sluice.Config.from_text(text)


def test_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sluice.GPUScheduler(config_file=tmp_path / "missing.yaml")


def test_values_given_in_the_program_are_checked_too():
    with pytest.raises(sluice.ConfigError, match="hint_us is 1.5"):
        sluice.Config(hint_us=1.5)
