"""What the Flink operator's `FlinkDeployment` may say.

Written from the reference of flink.apache.org/v1beta1 in the operator's documentation and the names in its
custom resource definition. Stricter than that definition: unknown fields are refused, and so is a setting
that is no text. The pod templates are checked by Kubernetes' own schema of a pod.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
WHOLE = {"type": "integer"}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


RESOURCE = _object(
    ("cpu", "memory"),
    cpu={"type": "number", "exclusiveMinimum": 0},
    memory={"type": "string", "pattern": r"^\d+ ?([kmgt]b?|Ki|Mi|Gi|Ti)?$"},
    ephemeralStorage=TEXT,
)
MANAGER = {
    "resource": RESOURCE,
    "replicas": {"type": "integer", "minimum": 1},
    "podTemplate": {"type": "object"},
}
VERSIONS = [*(f"v1_{minor}" for minor in range(16, 21)), *(f"v2_{minor}" for minor in range(5))]
JOB = _object(
    ("jarURI",),
    jarURI=TEXT,
    entryClass=TEXT,
    args={"type": "array", "items": {"type": "string"}},
    parallelism=WHOLE,
    state={"enum": ["running", "suspended"]},
    upgradeMode={"enum": ["stateless", "savepoint", "last-state"]},
    allowNonRestoredState={"type": "boolean"},
    initialSavepointPath=TEXT,
)
SCHEMA = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "flink.apache.org/v1beta1"},
    kind={"const": "FlinkDeployment"},
    metadata=_object(("name",), name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS),
    spec=_object(
        ("image", "flinkVersion", "serviceAccount", "jobManager", "taskManager"),
        image=TEXT,
        imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        flinkVersion={"enum": VERSIONS},
        flinkConfiguration=TEXTS,
        logConfiguration=TEXTS,
        serviceAccount=TEXT,
        mode={"enum": ["native", "standalone"]},
        restartNonce=WHOLE,
        ingress=_object(template=TEXT, className=TEXT, annotations=TEXTS, labels=TEXTS),
        podTemplate={"type": "object"},
        jobManager=_object(("resource",), **MANAGER),
        taskManager=_object(("resource",), **MANAGER),
        job=JOB,
    ),
)


def check(manifest: dict[str, Any], version: str) -> None:
    """Check a `FlinkDeployment`, its pod templates as pods of a version of Kubernetes.

    Raises
    ------
    jsonschema.ValidationError, kubernetes_validate.ValidationError
    """
    jsonschema.Draft202012Validator(SCHEMA).validate(manifest)
    spec = manifest["spec"]
    for part in (spec, spec["jobManager"], spec["taskManager"]):
        if "podTemplate" in part:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **part["podTemplate"]}
            kubernetes_validate.validate(pod, version, strict=True)
