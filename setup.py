"""The one place of metadata. Beam also ships this file to workers (`--setup_file ./setup.py`)."""

from pathlib import Path

from setuptools import find_packages, setup

# What the job itself needs. Ranges say what may work; constraints.txt says what was tested.
DEPENDENCIES = [
    "ada-url>=4,<5",
    "apache-beam>=2.75,<2.76",
    "crawler-user-agents>=1.67,<2",
    "defusedxml>=0.7.1,<0.8",
    "fastavro>=1.11,<2",
    "jinja2>=3.1.6,<4",
    "numpy>=2,<2.5",
    "protego>=0.6,<0.8",
    "publicsuffixlist>=1.0.2,<2",
    "pyarrow>=19,<24",
    "scipy>=1.15,<2",
]
TEST = [
    "cronsim>=2.6,<3",
    "duckdb>=1.3,<2",
    "hypothesis>=6.130,<7",
    "kubernetes-validate>=1.37,<1.38",
    "pandas>=2.2,<4",
    "prometheus-client>=0.22,<1",
    "pytest>=9,<10",
    "pytest-timeout>=2.4,<3",
    "pytest-xdist>=3.8,<4",
    "pyyaml>=6,<7",
]
# Pictures of simulations and backtests; without it they write tables alone.
PLOTS = ["matplotlib>=3.10,<4"]
COMPLETION = ["shtab>=1.7,<2"]
POSTGRES = ["psycopg[binary]>=3.2,<4"]
DOCS = ["mkdocs>=1.6.1,<2"]
LINT = ["mypy>=2.4,<3", "ruff>=0.17,<0.18"]

PACKAGES = ("recrawl", "pipelines", "transforms", "policies")

setup(
    name="recrawl",
    version="0.1.0",
    description="A nightly batch job that learns from crawl logs and writes the next day's crawl schedule",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.15",
    packages=find_packages(include=[f"{name}{below}" for name in PACKAGES for below in ("", ".*")]),
    package_data={"pipelines.webpage": ["*.j2"], "recrawl": ["py.typed"]},
    install_requires=DEPENDENCIES,
    extras_require={
        "test": TEST,
        "lint": LINT,
        "plots": PLOTS,
        "completion": COMPLETION,
        "postgres": POSTGRES,
        "docs": DOCS,
        "dev": TEST + LINT + PLOTS + COMPLETION + POSTGRES + DOCS,
        # Models of Han et al. 2019 for `recrawl reproduce`; without them they are left out.
        "keras": ["keras>=3.5,<4", "jax>=0.5,<1"],
        "boosting": ["scikit-learn>=1.6,<2"],
        # Stand-ins for `make test-buckets`, and of the extra gcp what a bucket needs.
        "buckets": [
            "flask>=3.1,<4",
            "flask-cors>=6,<7",
            "gcp-storage-emulator>=2026.7,<2027",
            "google-auth-httplib2>=0.2,<0.3",
            "google-cloud-storage>=2.18,<4",
            "moto[s3]>=5.1,<6",
        ],
        "fuzz": ["atheris>=3,<4"],
        "aws": ["apache-beam[aws]>=2.75,<2.76"],
        "gcp": ["apache-beam[gcp]>=2.75,<2.76"],
        # Flink's jars, 232 MB; its Python API is not needed.
        "flink": ["apache-flink-libraries>=1.20.5,<1.21"],
    },
    entry_points={
        "console_scripts": [
            "recrawl = recrawl.__main__:main",
            "recrawl-worker = recrawl.worker:main",
        ]
    },
)
