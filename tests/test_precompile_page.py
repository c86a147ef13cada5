"""The page of a cost card in a browser: it answers first, sorts, filters, and fits every screen."""

import dataclasses
import json
import pathlib
import shutil

import pytest

from gshard_annotate.inspector.report import Operation, Report
from gshard_train.precompiling.advice import Advice, Tried
from gshard_train.precompiling.breakdown import PARTS
from gshard_train.precompiling.card import cost_card
from gshard_train.precompiling.job import Allocation, Facts, Fault, Job, Result, Tensor

pytestmark = pytest.mark.slow

GIB = 2**30
SCOPES = ("dense_feed_forward", "experts", "attention", "gating", "dispatch", "logits", "optimizer")
SAMPLE = pathlib.Path(__file__).parents[1] / "packages/gshard-annotate/tests/report.json"


def result_that_fits():
    report = Report.from_json(SAMPLE.read_text("utf-8"))
    operations = tuple(Operation(s, "dot_general", False, False, 1, 1, 1, 1e-5) for s in SCOPES)
    tensors = (
        Tensor(what="parameters", name="encoder.wi", shape=(9, 32, 1024, 8192), dtype="float32",
               split="- expert - -", device_bytes=9 * 2**25),
        Tensor(what="optimizer", name="v_row.wi", shape=(9, 32, 8192), dtype="float32",
               split="- expert -", device_bytes=9 * 2**15),
    )  # fmt: skip
    facts = Facts(
        num_devices=2048, device_kind="TPU v3", mesh={"data": 1, "expert": 2048},
        parameters=6 * 10**11, expert_parameters=5 * 10**11, active_parameters=10**9,
        batch_size=16384, source_tokens=2**22, target_tokens=2**22, model_flops=1e15,
        tensors=tensors,
    )  # fmt: skip
    job = Job(gin_files=("moe_2048e_36l.gin",), topology="v3:32x32")
    return Result(
        job=job,
        facts=facts,
        report=dataclasses.replace(report, operations=operations),
        lower_seconds=1.5,
        compile_seconds=48.0,
        host_peak_bytes=5 * GIB,
    )


def card_too_large():
    fits = result_that_fits()
    temporary = Allocation(
        bytes=3 * GIB, shape="f32[8,2048,32000]", op_name="jit(step)/logits/dot_general",
        source="transformer.py:210",
    )  # fmt: skip
    fault = Fault(
        kind="too large", message="it does not fit on a device", needed_bytes=19 * GIB,
        limit_bytes=15 * GIB, allocations=(temporary,),
    )  # fmt: skip
    flags = ("--gin.TransformerConfig.remat=\"'full'\"", "--gin.Experiment.microbatches=4")
    tried = (
        Tried(what="offload_optimizer", outcome="not tried: its state takes 8 MiB only"),
        Tried(what="one activation per pair of layers", flags=flags[:1], fits=False,
              outcome="16 GiB, 1 GiB too much", peak_bytes=16 * GIB),
        Tried(what="one activation per pair of layers, and 4 parts of a batch", flags=flags,
              fits=True, outcome="9 GiB, 6 GiB free", peak_bytes=9 * GIB, step_seconds=0.75),
    )  # fmt: skip
    card = cost_card(dataclasses.replace(fits, report=None, fault=fault))
    return dataclasses.replace(card, advice=Advice(tried=tried, found=tried[-1]))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of the page of what fits and of the page of what does not."""
    folder = tmp_path_factory.mktemp("cards")
    cards = {"fits": cost_card(result_that_fits(), price=2.0), "too_large": card_too_large()}
    for name, card in cards.items():
        (folder / f"{name}.html").write_text(card.html(), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in cards}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver

    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs the programs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run", "disable-sync",
                 "disable-quic", "disable-background-networking", "disable-component-update",
                 "disable-dev-shm-usage", f"user-data-dir={profile}"):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def texts(browser, selector):
    """What is seen of the elements, asked for in one go: each question takes milliseconds."""
    script = """
      return [...document.querySelectorAll(arguments[0])]
        .filter((each) => each.checkVisibility()).map((each) => each.innerText.trim());
    """
    return [text for text in browser.execute_script(script, selector) if text]


def show(browser, address, width=1400, scheme="light"):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(address)


def test_verdict_speed_and_price_come_first(browser, pages):
    show(browser, pages["fits"])
    assert texts(browser, "h1, .verdict")[0] == "moe_2048e_36l"
    (verdict,) = browser.find_elements("css selector", ".verdict.good")
    assert "Fits:" in verdict.text
    last = browser.find_elements("css selector", ".figure")[-1]
    assert "Money" in last.text
    assert last.rect["y"] + last.rect["height"] < 800


def test_every_part_of_the_time_has_a_colour_of_its_own(browser, pages):
    show(browser, pages["fits"])
    for scheme in ("light", "dark"):
        show(browser, pages["fits"], scheme=scheme)
        script = """
          return [...document.querySelectorAll("#time .key")]
            .map((each) => getComputedStyle(each).backgroundColor);
        """
        colours = browser.execute_script(script)
        assert len(set(colours)) == len(colours) == len(PARTS)


def test_collectives_sort_and_filter(browser, pages):
    show(browser, pages["fits"])
    kinds = texts(browser, "#collectives tbody td:first-child")
    (header,) = [
        each
        for each in browser.find_elements("css selector", "#collectives thead button")
        if each.text.startswith("Kind")
    ]
    header.click()
    assert texts(browser, "#collectives tbody td:first-child") == sorted(kinds)
    browser.find_element("id", "find").send_keys("v_row")
    assert texts(browser, "output") == [f"0 of {len(kinds)} collectives, 1 of 2 arrays"]
    browser.find_element("id", "find").clear()
    browser.find_element("id", "find").send_keys(" ")
    browser.find_element("id", "flagged").click()
    flagged = texts(browser, "#collectives tbody td:first-child")
    assert flagged
    assert all("surprise" in text for text in flagged)


def test_what_would_make_it_fit_is_said_with_its_flags(browser, pages):
    show(browser, pages["too_large"])
    (verdict,) = browser.find_elements("css selector", ".verdict.warn")
    assert "4 GiB too much" in verdict.text
    assert texts(browser, "#advice .flags") == [
        "--gin.TransformerConfig.remat=\"'full'\"\n--gin.Experiment.microbatches=4"
    ]
    assert len(texts(browser, "#advice tbody tr")) == 3
    assert "transformer.py:210" in texts(browser, "#arrays tbody tr")[0]


@pytest.mark.parametrize("name", ["fits", "too_large"])
def test_page_fits_a_telephone_and_asks_the_network_for_nothing(browser, pages, name):
    browser.get_log("performance")
    show(browser, pages[name], width=400)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 400
    events = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert pages[name] in asked
    assert [url for url in asked if url != pages[name] and not url.startswith("data:")] == []
    assert browser.get_log("browser") == []
