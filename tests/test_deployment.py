"""The Kubernetes manifests: valid by Kubernetes' own schema, and what they start exists."""

import pathlib
import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from absl import flags

from gshard_train import command_line, config, distributed, errors
from gshard_train.watchdog import Limits

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "packages" / "gshard-train" / "deploy"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
# The part of a JobSet that is its own, as its CustomResourceDefinition (kubernetes-sigs/jobset,
# v1alpha2) and kubeflow-trainer-api's models have it.
TEXT, WHOLE, TEXTS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {}}


def closed(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


RULE = closed(
    "action",
    "name",
    name={"type": "string", "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    action={"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]},
    # What a Job says of its failure (Kubernetes' batch/v1).
    onJobFailureReasons={
        "type": "array",
        "items": {"enum": ["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy"]},
    },
    targetReplicatedJobs=TEXTS,
)
SPEC = closed(
    "replicatedJobs",
    failurePolicy=closed(
        maxRestarts=WHOLE,
        restartStrategy={"enum": ["Recreate", "BlockingRecreate", "InPlaceRestart"]},
        rules={"type": "array", "items": RULE},
    ),
    network=closed(
        enableDNSHostnames={"type": "boolean"},
        publishNotReadyAddresses={"type": "boolean"},
        subdomain=TEXT,
    ),
    replicatedJobs={
        "type": "array",
        "items": closed(
            "name",
            "template",
            name=TEXT,
            replicas=WHOLE,
            groupName=TEXT,
            dependsOn={"type": "array"},
            template={"type": "object"},
        ),
    },
)


def read(path: pathlib.Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))


def job_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (replicated,) = manifest["spec"]["replicatedJobs"]
    return replicated["template"]


def arguments_of(manifest: dict[str, Any]) -> list[str]:
    (container,) = job_of(manifest)["spec"]["template"]["spec"]["containers"]
    return container["args"]


def test_there_is_one_for_each_kind_of_machine():
    assert [path.name for path in MANIFESTS] == ["gpu-jobset.yaml", "tpu-jobset.yaml"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_jobset_has_known_fields_and_its_job_fits_the_schema(path):
    manifest = read(path)
    assert manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert manifest["kind"] == "JobSet"
    jsonschema.validate(manifest["spec"], SPEC)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": manifest["metadata"]}
    kubernetes_validate.validate(job | job_of(manifest), "1.34", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_it_restarts_on_everything_but_a_wrong_configuration(path):
    manifest = read(path)
    (rule,) = manifest["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["PodFailurePolicy"])
    (inner,) = job_of(manifest)["spec"]["podFailurePolicy"]["rules"]
    assert inner["action"] == "FailJob"
    assert inner["onExitCodes"]["values"] == [errors.USER_ERROR]
    assert errors.RESTART not in inner["onExitCodes"]["values"]
    assert job_of(manifest)["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_pod_that_goes_has_time_to_save_and_takes_all_with_it(path):
    manifest = read(path)
    pod = job_of(manifest)["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # the Job fails and JobSet starts all again
    # The others notice one that is gone, and end, before those that save are killed.
    assert pod["terminationGracePeriodSeconds"] > Limits().silent + distributed.HEARTBEAT_SECONDS
    assert manifest["spec"]["failurePolicy"]["maxRestarts"] >= 1000
    (container,) = pod["containers"]
    assert "command" not in container  # a shell in between would keep SIGTERM to itself


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_its_arguments_are_a_configuration_and_processes_that_the_trainer_takes(path):
    values = flags.FlagValues()
    command_line.define(values)
    arguments = [re.sub(r"\$\(JOB_COMPLETION_INDEX\)", "3", a) for a in arguments_of(read(path))]
    assert values(["gshard-train", *command_line.gin_arguments(arguments)]) == ["gshard-train"]
    assert not list(command_line.faults(values))
    text = config.load(values.gin_file, values.gin_bindings).text
    assert 'MIXTURE_OR_TASK_NAME = "TASK"' in text.replace("'", '"')
    processes: distributed.Processes = command_line.processes(values)
    count = job_of(read(path))["spec"]["parallelism"]
    assert job_of(read(path))["spec"]["completions"] == count
    if path.name.startswith("gpu"):
        assert processes.process_count == count
        name = read(path)["metadata"]["name"]
        assert processes.coordinator_address == f"{name}-node-0-0.{name}:8476"


def test_the_container_has_every_package_and_starts_the_trainer():
    recipe = (FOLDER / "Dockerfile").read_text("utf-8")
    for package in (ROOT / "packages").iterdir():
        assert f"/build/packages/{package.name}" in recipe
    for source in re.findall(r"^COPY (\S+) ", recipe, re.MULTILINE):
        assert (ROOT / source).exists()
    assert recipe.rstrip().endswith(
        'ENTRYPOINT ["tini", "--", "python", "-m", "gshard_train.train"]'
    )
