"""What the environment does at import: a CANN installation that is checked, logs, error codes."""

import re

import pytest
import torch

from torch_vnpu import errors, logs
from torch_vnpu._init import environment_log
from torch_vnpu._init.registry import cann

# ------------------------------------------------------------------------------------------------ CANN (R12)


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """A whole one, which the environment names."""
    for folder in ("runtime", "compiler", "opp"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runtime" / "version.info").write_text("Version=8.0.RC3\ntimestamp=20241001\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "opp"))
    return tmp_path


def test_a_whole_installation_and_none_are_silent(installation, monkeypatch, recwarn):
    cann.check_environment()
    assert cann.describe() == {"runtime": "virtual", "ASCEND_HOME_PATH": str(installation), "cann": "8.0.RC3"}
    monkeypatch.delenv("ASCEND_HOME_PATH")
    monkeypatch.setenv("ASCEND_OPP_PATH", "/nowhere")
    cann.check_environment()
    assert cann.describe() == {"runtime": "virtual", "ASCEND_HOME_PATH": None, "cann": None}
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda home, env: env.setenv("ASCEND_HOME_PATH", str(home / "gone")), ("ASCEND_HOME_PATH is '{home}/gone'",)),
        (lambda home, env: env.setenv("ASCEND_HOME_PATH", ""), ("ASCEND_HOME_PATH is ''",)),
        (lambda home, env: env.delenv("ASCEND_OPP_PATH"), ("ASCEND_OPP_PATH is not set", "{home}")),
        (lambda home, env: env.setenv("ASCEND_OPP_PATH", str(home / "gone")), ("ASCEND_OPP_PATH is '{home}/gone'",)),
        (lambda home, env: (home / "compiler").rmdir(), ("'compiler' is missing", "{home}/compiler")),
        (lambda home, env: (home / "runtime").rename(home / "other"), ("'runtime' is missing", "{home}/runtime")),
    ],
)
def test_an_installation_that_is_not_whole_is_refused_with_variable_path_remedy_and_code(
    installation, monkeypatch, break_it, words
):
    break_it(installation, monkeypatch)
    with pytest.raises(RuntimeError) as caught:
        cann.check_environment()
    text = str(caught.value)
    assert [word for word in words if word.format(home=installation) not in text] == []
    assert "source its set_env.sh, or unset ASCEND_HOME_PATH" in text
    assert text.endswith("ERR00008 PTA resource not found")


def test_another_version_is_one_warning(installation):
    (installation / "runtime" / "version.info").write_text("version = 7.0.1\n")
    with pytest.warns(RuntimeWarning, match=r"follows CANN 8, but .* with CANN 7\.0\.1") as warned:
        cann.check_environment()
    assert len(warned) == 1
    (installation / "runtime" / "version.info").write_text("nothing")
    cann.check_environment()


def test_the_import_checks_it_and_torch_stays_usable(with_torch):
    run = with_torch(
        """
        import torch
        errors = []
        for _ in range(2):
            try:
                import torch_vnpu
            except RuntimeError as error:
                errors.append(error)
        assert errors[0] is errors[1]
        print(errors[0])
        print((torch.ones(2) + 1).tolist())
        """,
        ASCEND_HOME_PATH="/no/such/folder",
        TORCH_NPU_COMPACT_ERROR_OUTPUT="1",
    ).passed()
    assert run.lines[0].startswith("ASCEND_HOME_PATH is '/no/such/folder', which is no folder. Install CANN")
    assert run.lines[1:] == ["[2.0, 2.0]"]


# ------------------------------------------------------------------------------------------------ error codes


def test_error_codes_and_the_variable_that_leaves_them_out(monkeypatch):
    monkeypatch.delenv("TORCH_NPU_COMPACT_ERROR_OUTPUT", raising=False)
    assert {part.name: int(part) for part in errors.Submodule} == {
        "PTA": 0,
        "OPS": 1,
        "DIST": 2,
        "GRAPH": 3,
        "PROF": 4,
        "UNKNOWN": 99,
    }
    assert errors.pta_error(errors.ErrCode.PARAM) == "\n[ERROR] ERR00001 PTA invalid parameter"
    assert errors.ops_error(errors.ErrCode.TIMEOUT).split()[1] == "ERR01011"
    assert errors.dist_error(errors.ErrCode.NOT_SUPPORT).split()[1] == "ERR02007"
    assert errors.graph_error(errors.ErrCode.VALUE).split()[1] == "ERR03003"
    assert errors.error_text(errors.Submodule.PROF, errors.ErrCode.TYPE).split()[1] == "ERR04002"
    assert errors.error_text(errors.Submodule.UNKNOWN, errors.ErrCode.INTERNAL).split()[1] == "ERR99005"
    for code in errors.ErrCode:  # each has words
        assert len(errors.pta_error(code).split(" PTA ")[1]) > 3
    monkeypatch.setenv("TORCH_NPU_COMPACT_ERROR_OUTPUT", "0")
    assert errors.pta_error(errors.ErrCode.PARAM)
    monkeypatch.setenv("TORCH_NPU_COMPACT_ERROR_OUTPUT", "1")
    assert errors.pta_error(errors.ErrCode.PARAM) == ""


# ------------------------------------------------------------------------------------------------------- logs


def lines(capsys, names, filter=""):
    x = torch.ones(3, device="npu:1")
    torch.npu.synchronize(1)
    with logs.enabled(names, filter):
        (x + x).mul_(2)
        torch.npu.synchronize(1)
    (x - x).sum()  # after the end nothing is printed
    torch.npu.synchronize(1)
    return capsys.readouterr().err.splitlines()


def test_op_plugin_prints_each_kernel_as_it_is_called(capsys):
    assert lines(capsys, "op_plugin") == [
        "[op_plugin] aten::add.Tensor npu:1 stream 0",
        "[op_plugin] aten::mul_.Tensor npu:1 stream 0",
    ]
    said = lines(capsys, "+op_plugin")
    assert "[op_plugin] aten::mul_.Tensor npu:1 stream 0 has ended" in said
    assert len(said) == 4
    assert lines(capsys, "-op_plugin") == []


def test_dispatch_prints_each_task_as_it_enters_and_leaves_a_queue(capsys):
    said = lines(capsys, "dispatch")
    written = [
        line.split("index ")[1]
        for line in said
        if line.startswith("[dispatch] WriteQueue: write success, device 1, stream 0")
    ]
    read = [
        line.split("index ")[1]
        for line in said
        if line.startswith("[dispatch] ReadQueue: read success, device 1, stream 0")
    ]
    assert written == read
    assert [entry.split(", ")[1] for entry in written] == ["aten::add.Tensor", "aten::mul_.Tensor"]
    numbers = [int(entry.split(",")[0]) for entry in written]
    assert numbers[1] == numbers[0] + 1
    assert all(", thread " in line for line in lines(capsys, "+dispatch"))


@pytest.mark.parametrize(
    ("filter", "kept"),
    [
        ("+mul", ["mul_"]),
        ("add", ["add"]),
        ("-add", ["mul_"]),
        ("+aten,-mul", ["add"]),
        ("+add, +mul", ["add", "mul_"]),
    ],
)
def test_the_filter_keeps_and_drops_lines(capsys, filter, kept):
    assert [line.split("::")[1].split(".")[0] for line in lines(capsys, "op_plugin", filter)] == kept


@pytest.mark.parametrize(
    ("names", "filter", "words"),
    [
        ("op_plugins", "", "names 'op_plugins', which is none of the logs: op_plugin, dispatch, env"),
        ("op_plugin,+", "", "TORCH_NPU_LOGS is 'op_plugin,+': '+' must stand before a name"),
        ("", "-", "TORCH_NPU_LOGS_FILTER is '-'"),
    ],
)
def test_logs_that_do_not_exist_are_refused(names, filter, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        logs.parse(names, filter)


def test_the_variables_start_the_logs_at_import(with_torch):
    run = with_torch(
        """
        import torch, torch_vnpu
        (torch.ones(2, device="npu") + 1).cpu()
        """,
        TORCH_NPU_LOGS="op_plugin, dispatch",
        TORCH_NPU_LOGS_FILTER="+add",
    )
    assert (run.code, run.out) == (0, "")
    assert [line.split()[0] for line in run.err.splitlines()] == ["[op_plugin]", "[dispatch]", "[dispatch]"]
    refused = with_torch("import torch_vnpu", TORCH_NPU_LOGS="nonsense")
    assert "ValueError: TORCH_NPU_LOGS names 'nonsense'" in refused.err


def test_variables_that_are_read_during_the_import_are_logged_once_each(with_torch):
    code = """
        import os
        before = {name: vars(os).get(name) for name in ("environ", "getenv")} | dict(vars(type(os.environ)))
        held = os.environ
        import torch_vnpu
        assert os.environ is held and os.getenv is before["getenv"]
        assert all(vars(type(os.environ))[name] is value for name, value in vars(type(os.environ)).items() if name in before)
        assert type(os.environ).__getitem__ is before["__getitem__"]
        os.getenv("AFTERWARDS")
        """
    run = with_torch(code, TORCH_NPU_LOGS="env", UNPATCH_DISABLE="nobody", NPU_ASD_ENABLE="0")
    assert (run.code, run.out) == (0, "")
    said = run.err.splitlines()
    assert "[env] UNPATCH_DISABLE is 'nobody'" in said
    assert "[env] ASCEND_HOME_PATH is not set" in said
    assert len(said) == len({line.split()[1] for line in said})
    assert "AFTERWARDS" not in run.err
    for off in ("", "-env", "op_plugin"):
        assert with_torch(code, TORCH_NPU_LOGS=off).err == ""


def test_nothing_in_os_is_replaced_where_it_is_off_and_secrets_are_not_shown_where_it_is_on(monkeypatch, capsys):
    import os

    kind = type(os.environ)
    original = kind.__getitem__
    monkeypatch.delenv("TORCH_NPU_LOGS", raising=False)
    with environment_log.logged_reads():
        assert kind.__getitem__ is original
    monkeypatch.setenv("TORCH_NPU_LOGS", "+env")
    monkeypatch.setenv("MY_TOKEN", "secret")
    with environment_log.logged_reads():
        assert kind.__getitem__ is not original
        assert os.getenv("MY_TOKEN") == os.environ["MY_TOKEN"] == "secret"
        assert os.environ.get("VNPU_NOTHING", "other") == "other"
        with pytest.raises(KeyError):
            os.environ["VNPU_NOTHING"]
    assert kind.__getitem__ is original
    assert capsys.readouterr().err.splitlines() == ["[env] MY_TOKEN is set", "[env] VNPU_NOTHING is not set"]
