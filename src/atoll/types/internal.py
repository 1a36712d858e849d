"""The parts of the types for atoll's own rooms: checks, copies, reading of JSON. They are not public."""

from atoll.types.creation import one_source
from atoll.types.decoding import converted, from_json, msgpack_reader
from atoll.types.delegation import SCOPES
from atoll.types.egress import (
    ASK_DEADLINE_MOST_S,
    PASSWORD_MASK,
    PLACEHOLDER,
    SANDBOX_DOMAIN,
    check_network,
)
from atoll.types.given import (
    as_json,
    check_choice,
    check_kind,
    check_number,
    check_text,
    check_texts,
    copied,
    local_path,
    path_text,
    texts_of,
)
from atoll.types.lengths import seconds_of
from atoll.types.models import MODEL_ENV, MODELS_HOST, check_access, nanos_of, usd_of
from atoll.types.notebook import html_output, html_table
from atoll.types.sandboxes import BUILD_ATTRIBUTE, ORIGIN_ATTRIBUTE, OWN_ATTRIBUTES, users_attributes
from atoll.types.schedules import schedule_of
from atoll.types.secrets import SECRET_BYTES_MOST, check_secret_value
from atoll.types.services import SERVICES_MOST, check_service_name, check_services
from atoll.types.teams import key_hash, key_id_of, key_prefix
from atoll.types.templates import DEFAULT_TAG
from atoll.types.volumes import check_volume_quota, copied_volumes, is_host_path, volume_mount

__all__ = [
    "ASK_DEADLINE_MOST_S",
    "BUILD_ATTRIBUTE",
    "DEFAULT_TAG",
    "MODELS_HOST",
    "MODEL_ENV",
    "ORIGIN_ATTRIBUTE",
    "OWN_ATTRIBUTES",
    "PASSWORD_MASK",
    "PLACEHOLDER",
    "SANDBOX_DOMAIN",
    "SCOPES",
    "SECRET_BYTES_MOST",
    "SERVICES_MOST",
    "as_json",
    "check_access",
    "check_choice",
    "check_kind",
    "check_network",
    "check_number",
    "check_secret_value",
    "check_service_name",
    "check_services",
    "check_text",
    "check_texts",
    "check_volume_quota",
    "converted",
    "copied",
    "copied_volumes",
    "from_json",
    "html_output",
    "html_table",
    "is_host_path",
    "key_hash",
    "key_id_of",
    "key_prefix",
    "local_path",
    "msgpack_reader",
    "nanos_of",
    "one_source",
    "path_text",
    "schedule_of",
    "seconds_of",
    "texts_of",
    "usd_of",
    "users_attributes",
    "volume_mount",
]
