"""Make certificates for a Dask cluster, and a configuration that uses them.

    python cluster/make_certificates.py FOLDER [--days 365]

FOLDER must not exist yet. The script writes into it ca.pem (the certificate of the authority), a key and a certificate
for each role (scheduler, workers and clients), and dask.yaml, which has the settings of cluster/dask.yaml and refuses
unencrypted connections. Both ends of every connection are checked against the authority. The key of the authority is
not kept, so no further certificates can be signed: to replace one certificate, make all of them again. Copy the files
of each role only to the machines that need them. Only the owner can read the keys. The script requires the packages
cryptography and PyYAML.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROLES = ("scheduler", "worker", "client")


def main() -> int:
    parser = argparse.ArgumentParser(description="certificates for a Dask cluster")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--days", type=int, default=365, help="days for which they are valid (default: 365)")
    options = parser.parse_args()
    try:
        options.folder.mkdir(mode=0o700)
    except OSError as error:
        print(f"make_certificates.py: {options.folder}: {error.strerror}", file=sys.stderr)
        return 2
    make_certificates(options.folder.resolve(), options.days)
    print(f"export DASK_CONFIG={options.folder.resolve() / 'dask.yaml'}")
    return 0


def make_certificates(folder: Path, days: int) -> None:
    """Write ca.pem, ROLE-key.pem and ROLE.pem for every role, and dask.yaml."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = name_of("streamsvm authority")
    certificate = sign(authority, authority_key.public_key(), authority, authority_key, days, is_authority=True)
    (folder / "ca.pem").write_bytes(certificate)
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(name_of(f"streamsvm {role}"), key.public_key(), authority, authority_key, days)
        (folder / f"{role}.pem").write_bytes(certificate)
        write_secret(folder / f"{role}-key.pem", key)
    (folder / "dask.yaml").write_text(yaml.safe_dump(make_configuration(folder)))


def sign(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: int,
    is_authority: bool = False,
) -> bytes:
    """Return a certificate in PEM format.

    It is valid for servers and clients, since every role both listens and connects.
    """
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # the clocks of machines differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(make_usage(is_authority), critical=True)
    )
    if not is_authority:
        both_ends = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(both_ends, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def make_usage(is_authority: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: to sign certificates, or for TLS handshakes."""
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def name_of(text: str) -> x509.Name:
    """Return a distinguished name that consists of a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def write_secret(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a key to a file. From the moment the file exists, only its owner can read it."""
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


def make_configuration(folder: Path) -> dict[str, Any]:
    """Return the settings of cluster/dask.yaml, with settings that enable TLS by the files in `folder`."""
    configuration: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "dask.yaml").read_text())
    tls: dict[str, Any] = {"ca-file": str(folder / "ca.pem")}
    for role in ROLES:
        tls[role] = {"cert": str(folder / f"{role}.pem"), "key": str(folder / f"{role}-key.pem")}
    configuration["distributed"]["comm"] = {"require-encryption": True, "tls": tls}
    return configuration


if __name__ == "__main__":
    sys.exit(main())
