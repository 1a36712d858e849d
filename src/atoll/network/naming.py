"""Answers the DNS questions of a guest whose policy has rules by name.

A name that no rule allows does not exist here and is asked nowhere, so no data leaves in its labels. A name
that is allowed gets an address that stands for it.
"""

from __future__ import annotations

import ipaddress

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from atoll.network.egress import Egress
from atoll.network.names import SYNTHETIC
from atoll.network.resolver import ResolveError, Resolver
from atoll.policy import Verdict, closed, is_internal, plain, plain_host

_TTL_S = 60
# What a guest may learn about an allowed name beside its address. Answers are the nameserver's own.
_FORWARDED = frozenset(
    {
        dns.rdatatype.CAA,
        dns.rdatatype.CNAME,
        dns.rdatatype.MX,
        dns.rdatatype.NS,
        dns.rdatatype.SOA,
        dns.rdatatype.SRV,
        dns.rdatatype.TXT,
    }
)
_LONGEST_BYTES = 1232
# An answer with this and the longest name stays below the 512 bytes that every client takes.
_LONGEST_REASON_BYTES = 160
_REVERSE = dns.name.from_text("in-addr.arpa.")


class NamedAnswers:
    """Makes the answers.

    Args:
        egress: What the guest may reach, and the names that it knows.
        resolver: Asks the host's nameservers.
    """

    def __init__(self, egress: Egress, resolver: Resolver) -> None:
        self._egress = egress
        self._resolver = resolver

    @property
    def needed(self) -> bool:
        """Whether the guest has rules."""
        return self._egress.judge is not None

    async def answer(self, wire: bytes) -> bytes | None:
        """Return the answer to a question; None if it deserves none."""
        try:
            query = dns.message.from_wire(wire, ignore_trailing=True)
            if query.opcode() != dns.opcode.QUERY or len(query.question) != 1:
                return None
            reply = await self._reply(query)
            return reply.to_wire()
        except dns.exception.DNSException:
            return None

    async def _reply(self, query: dns.message.Message) -> dns.message.Message:
        reply = dns.message.make_response(query, recursion_available=True)
        question = query.question[0]
        if question.rdclass != dns.rdataclass.IN:
            return _failed(reply, dns.rcode.REFUSED)
        if question.rdtype == dns.rdatatype.PTR:
            return self._reverse(reply, question)
        text = question.name.to_text(omit_final_dot=True)
        name = plain_host(text)
        kind = dns.rdatatype.to_text(question.rdtype)
        verdict = self._egress.name(text)
        if name is None or verdict.action != "allow":
            return self._refuse(reply, text, kind, verdict)
        try:
            return await self._known(reply, question, name, kind)
        except ResolveError as error:
            return _failed(reply, error.code)

    async def _known(
        self, reply: dns.message.Message, question: dns.rrset.RRset, name: str, kind: str
    ) -> dns.message.Message:
        if question.rdtype == dns.rdatatype.A:
            return await self._address(reply, question, name)
        if question.rdtype in _FORWARDED and self._may_resolve(name):
            answer = await self._resolver.message(name, question.rdtype)
            reply.set_rcode(answer.rcode())
            reply.answer = answer.answer
            if len(reply.to_wire()) > _LONGEST_BYTES:
                reply.answer = []
                why = f"its answer is over {_LONGEST_BYTES} bytes"
                return self._refuse(reply, name, kind, Verdict("deny", reason=why), code=dns.rcode.NOERROR)
            return reply
        if question.rdtype == dns.rdatatype.ANY:
            return _failed(reply, dns.rcode.NOTIMP)
        # No address of IPv6, and no record that would lead around this one (HTTPS with keys of ECH).
        return reply

    async def _address(
        self, reply: dns.message.Message, question: dns.rrset.RRset, name: str
    ) -> dns.message.Message:
        if self._may_resolve(name):
            addresses = await self._resolver.addresses(name)
            if not any(self._egress.may_lead_to(name, address) for address in addresses):
                # Without the address: a guest learns nothing of the host's network by asking for its names.
                kind = closed(plain(addresses[0]))
                why = f"it leads to an address that {f'is {kind} and that ' if kind else ''}no rule opens"
                return self._refuse(reply, name, "A", Verdict("deny", reason=why))
        address = self._egress.names.address_of(name)
        if address is None:
            return _failed(reply, dns.rcode.SERVFAIL)
        reply.answer = [dns.rrset.from_text(question.name, _TTL_S, "IN", "A", address)]
        return reply

    def _may_resolve(self, name: str) -> bool:
        # A proxy resolves its names itself, and nobody else is to learn them.
        return not is_internal(name) and self._egress.may_resolve(name)

    def _reverse(self, reply: dns.message.Message, question: dns.rrset.RRset) -> dns.message.Message:
        labels = question.name.relativize(_REVERSE).labels
        name = None
        if question.name.is_subdomain(_REVERSE) and len(labels) == 4:
            text = b".".join(reversed(labels)).decode("ascii", "replace")
            if _is_address(text) and ipaddress.ip_address(text) in SYNTHETIC:
                name = self._egress.names.name_at(text)
        if name is None:
            return _failed(reply, dns.rcode.NXDOMAIN)
        reply.answer = [dns.rrset.from_text(question.name, _TTL_S, "IN", "PTR", f"{name}.")]
        return reply

    def _refuse(
        self,
        reply: dns.message.Message,
        name: str,
        kind: str,
        verdict: Verdict,
        code: dns.rcode.Rcode = dns.rcode.NXDOMAIN,
    ) -> dns.message.Message:
        """Say that the name does not exist: musl asks again for five seconds after REFUSED."""
        self._egress.note(verdict, name, 0, "dns", method=kind)
        if verdict.action == "unplug":
            self._egress.unplug(verdict.reason)
        if reply.edns >= 0:
            text = verdict.reason.encode()[:_LONGEST_REASON_BYTES].decode(errors="ignore")
            why = dns.edns.EDEOption(dns.edns.EDECode.BLOCKED, text or None)
            reply.use_edns(0, payload=_LONGEST_BYTES, options=[why])
        return _failed(reply, code)


def _failed(reply: dns.message.Message, code: int) -> dns.message.Message:
    reply.set_rcode(dns.rcode.Rcode(code))
    return reply


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
