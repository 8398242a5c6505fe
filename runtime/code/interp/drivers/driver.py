# hutch: runs pieces of code that come on stdin, a JSON object a line, in one namespace. What the code writes goes to
# stdout and stderr as it is; behind it come the token that only hutchd and this process know, and on stdout what became of it.
def _hutch():
    import ast, base64, builtins, inspect, io, json, linecache, os, sys, traceback, types

    token, own = sys.argv[1], os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.argv = [""]
    if "" not in sys.path and not sys.flags.isolated:
        sys.path.insert(0, "")
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    space, found = main.__dict__, []
    most = 4 << 20  # bytes of an artifact

    def add(kind, mime, data):
        if isinstance(data, str):
            size, text = len(data.encode("utf-8", "replace")), data
        else:
            size, text = len(data), base64.b64encode(data).decode()
        found.append({"kind": kind, "mime_type": mime, "size": size, "data": text if size <= most else ""})

    def show(value):
        """Adds what a value shows as, beside its text."""
        if hasattr(value, "to_json") and hasattr(value, "columns"):
            try:
                add("table", "application/json", value.head(1000).to_json(orient="split", date_format="iso"))
                return
            except Exception:
                pass
        for name, mime in (("_repr_png_", "image/png"), ("_repr_svg_", "image/svg+xml"), ("_repr_html_", "text/html")):
            method = getattr(value, name, None)
            if callable(method) and not inspect.isclass(value):
                try:
                    data = method()
                except Exception:
                    continue
                if isinstance(data, tuple):
                    data = data[0]
                if isinstance(data, (str, bytes)):
                    add("value", mime, data)
                    return

    def display(*values):
        for value in values:
            show(value)
            print(repr(value))

    def figures():
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        for number in plt.get_fignums():
            data = io.BytesIO()
            plt.figure(number).savefig(data, format="png", bbox_inches="tight")
            add("figure", "image/png", data.getvalue())
        plt.close("all")

    space["display"] = display

    def allow(names):
        """Refuses imports of the code itself, not those of what it imports."""
        if not names:
            space["__builtins__"] = builtins
            return
        wanted, inner = set(names), builtins.__import__

        def hook(name, globals=None, locals=None, fromlist=(), level=0):
            if globals is not None and globals.get("__name__") == "__main__" and level == 0:
                if not any(name == w or name.startswith(w + ".") for w in wanted):
                    raise ImportError("module %r may not be imported: allowed_imports has %s" % (name, ", ".join(sorted(wanted))))
            return inner(name, globals, locals, fromlist, level)

        space["__builtins__"] = dict(vars(builtins), __import__=hook)

    def run(request):
        name = "<code %d>" % request["id"]
        code = request["code"]
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        flags = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)

        def evaluate(compiled):
            value = eval(compiled, space)
            if inspect.iscoroutine(value) and compiled.co_flags & inspect.CO_COROUTINE:
                import asyncio

                value = asyncio.run(value)
            return value

        evaluate(compile(tree, name, "exec", flags=flags))
        if last is None:
            return ""
        value = evaluate(compile(last, name, "eval", flags=flags))
        if value is None:
            return ""
        space["_"] = value
        show(value)
        return repr(value)

    def plain(text):
        return str(text).encode("utf-8", "replace").decode()

    for line in own:
        request = json.loads(line)
        answer = {"id": request["id"]}
        del found[:]
        try:
            try:
                allow(request.get("allowed_imports"))
                answer["text"] = plain(run(request))[:most]
            finally:
                figures()
        except BaseException as e:
            trace = e.__traceback__
            while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<code "):
                trace = trace.tb_next
            lines = traceback.format_exception(type(e), e, trace)
            answer["error"] = {"name": type(e).__name__, "value": plain(e)[:65536], "traceback": plain("".join(lines))[:65536]}
        answer["artifacts"] = found[:50]
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        for fd, text in ((2, str(request["id"])), (1, json.dumps(answer))):
            data = ("\x1e" + token + text + "\n").encode()
            while data:
                data = data[os.write(fd, data):]


_hutch()
