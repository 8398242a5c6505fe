# Code: values, what is shown, errors, contexts, variables.
from e2b import SandboxException
from e2b_code_interpreter import Sandbox

with Sandbox.create(timeout=300) as sb:
    e = sb.run_code("import sys\nx = 41\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert e.text == "42" and "".join(e.logs.stdout) == "out\n" and "".join(e.logs.stderr) == "err\n", e
    assert e.error is None and e.execution_count == 1, e.execution_count
    assert sb.run_code("x").text == "41"
    # Output is there before the code has ended.
    sb.commands.run("mkfifo /tmp/go")
    told = []
    def on_stdout(m):
        told.append(m.line)
        if len(told) == 1:
            sb.commands.run("echo now >/tmp/go")
    e = sb.run_code("print('before')\nprint(open('/tmp/go').read(), end='')", on_stdout=on_stdout)
    assert "".join(told) == "before\nnow\n" == "".join(e.logs.stdout), (told, e.logs)
    e = sb.run_code("1/0")
    assert e.error.name == "ZeroDivisionError" and "division" in e.error.value and "1/0" in e.error.traceback, e.error
    shown = []
    e = sb.run_code("class H:\n  def _repr_html_(self): return '<b>hi</b>'\n  def __repr__(self): return 'H!'\nH()",
                    on_result=shown.append)
    assert e.results[0].html == "<b>hi</b>" and e.text == "H!" and e.results[0].is_main_result and len(shown) == 1, e
    e = sb.run_code("display(H())\n7")
    assert e.results[0].html == "<b>hi</b>" and e.text == "7", e
    png = "iVBORw0KGgo="
    e = sb.run_code("import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode('%s')\nP()" % png)
    assert e.results[0].png == png, e
    e = sb.run_code("class T:\n  columns = ['a', 'b']\n  def head(self, n): return self\n"
                    "  def to_json(self, **k): return '{\"columns\":[\"a\",\"b\"],\"index\":[0],\"data\":[[1,2]]}'\nT()")
    assert e.results[0].data == {"a": [1], "b": [2]}, e.results[0]
    assert sb.run_code("import os; os.environ.get('V')", envs={"V": "w"}).text == "w"
    e = sb.run_code("echo \"$V\"; echo $W", language="bash", envs={"V": "it's; echo no", "W": "w"})
    assert "".join(e.logs.stdout) == "it's; echo no\nw\n", e
    try:
        sb.run_code("true", language="bash", envs={"V;reboot": "x"})
        raise AssertionError("a name of a variable is code")
    except SandboxException:
        pass
    assert sb.run_code("import os; os.environ.get('V')").text is None
    assert sb.run_code("echo $((6*7))", language="bash").logs.stdout == ["42\n"]

    c = sb.create_code_context(cwd="/tmp")
    assert sb.run_code("import os; os.getcwd()", context=c).text == "/tmp"
    assert sb.run_code("y = 1; 'x' in globals()", context=c).text == "False"
    assert c.id in [k.id for k in sb.list_code_contexts()]
    sb.restart_code_context(c)
    assert sb.run_code("'y' in globals(), os.getcwd() if 'os' in globals() else ''", context=c).text.startswith("(False")
    sb.remove_code_context(c)
    assert c.id not in [k.id for k in sb.list_code_contexts()]
    try:
        sb.run_code("1", context=c)
        raise AssertionError("it is removed")
    except Exception as e:
        assert "not found" in str(e), e
    try:
        sb.run_code("1", language="cobol")
        raise AssertionError("nobody runs that")
    except Exception as e:
        assert "cobol" in str(e), e
print("ok")
