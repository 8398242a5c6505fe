# For the stateful run, in which all bodies are right: what is made is such that it can be made here, so that requests
# go on to what can be done with it.
import schemathesis

MADE = {
    "createSandbox": {"image": "host", "timeout": 300},
    "runProcess": {"cmd": "echo out; read line; echo $line", "background": True, "openStdin": True},
    "createSnapshot": {},
    "openPort": {"port": 8000},
    "forkSandbox": {"count": 1},
    "forkSnapshot": {"count": 1},
    "runCode": {"code": "6 * 7"},
}


@schemathesis.hook
def map_body(context, body):
    name = context.operation.definition.raw.get("operationId")
    return dict(MADE[name]) if name in MADE else body
