package nameserver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"atoll/policy"
	"atoll/relay/names"
	"atoll/relay/resolve"
)

const (
	ttlSeconds = 60
	// An answer with this and the longest name stays below the 512 bytes that every client takes.
	reasonMost = 160
)

// What a guest may learn about an allowed name beside its address. Answers are the nameserver's own.
var forwarded = []uint16{dns.TypeCAA, dns.TypeCNAME, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeSRV, dns.TypeTXT}

// named makes the answers for a guest that has rules by name.
type named struct {
	judge    Judge
	resolver *resolve.Resolver
	names    *names.Table
}

// answer is nil for a message that deserves none.
func (n *named) answer(ctx context.Context, wire []byte) []byte {
	query := new(dns.Msg)
	if err := query.Unpack(wire); err != nil || query.Opcode != dns.OpcodeQuery || len(query.Question) != 1 {
		return nil
	}
	reply := new(dns.Msg).SetReply(query)
	reply.RecursionAvailable, reply.Compress = true, true
	if query.IsEdns0() != nil {
		reply.SetEdns0(resolve.PayloadMost, false)
	}
	if err := n.decide(ctx, reply); err != nil {
		var failed *resolve.Error
		if !errors.As(err, &failed) {
			return nil
		}
		setCode(reply, failed.Code)
	}
	answer, err := reply.Pack()
	if err != nil { // a record of the nameserver's that cannot be said again
		reply.Answer = nil
		setCode(reply, dns.RcodeServerFailure)
		answer, err = reply.Pack()
	}
	if err != nil {
		return nil
	}
	return answer
}

// decide fills in a reply that has only its question.
func (n *named) decide(ctx context.Context, reply *dns.Msg) error {
	question := reply.Question[0]
	switch {
	case question.Qclass != dns.ClassINET:
		reply.Rcode = dns.RcodeRefused
		return nil
	case question.Qtype == dns.TypePTR:
		n.reverse(reply)
		return nil
	}
	text := question.Name
	if text != "." {
		text = strings.TrimSuffix(text, ".")
	}
	verdict, name := n.judge.Name(text), policy.PlainHost(text)
	if name == "" || verdict.Action != policy.Allow {
		n.refuse(reply, text, verdict, dns.RcodeNameError)
		return nil
	}
	switch {
	case question.Qtype == dns.TypeA:
		return n.address(ctx, reply, name)
	case question.Qtype == dns.TypeANY:
		reply.Rcode = dns.RcodeNotImplemented
	case slices.Contains(forwarded, question.Qtype) && n.mayResolve(name):
		return n.forward(ctx, reply, name)
	}
	// No address of IPv6, and no record that would lead around this one (HTTPS with keys of ECH).
	return nil
}

func (n *named) address(ctx context.Context, reply *dns.Msg, name string) error {
	if n.mayResolve(name) {
		addresses, err := n.resolver.Addresses(ctx, name)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(addresses, func(each netip.Addr) bool { return n.judge.MayLeadTo(name, each) }) {
			// Without the address: a guest learns nothing of the host's network by asking for its names.
			why := "it leads to an address that no rule opens"
			if is := n.judge.Closed(addresses[0]); is != "" {
				why = fmt.Sprintf("it leads to an address that is %s and that no rule opens", is)
			}
			n.refuse(reply, name, policy.Admission{Action: policy.Deny, Reason: why}, dns.RcodeNameError)
			return nil
		}
	}
	address, ok := n.names.AddressOf(name)
	if !ok {
		reply.Rcode = dns.RcodeServerFailure
		return nil
	}
	reply.Answer = []dns.RR{&dns.A{Hdr: header(reply), A: address.AsSlice()}}
	return nil
}

func (n *named) forward(ctx context.Context, reply *dns.Msg, name string) error {
	answer, err := n.resolver.Message(ctx, name, reply.Question[0].Qtype)
	if err != nil {
		return err
	}
	setCode(reply, answer.Rcode)
	reply.Answer = answer.Answer
	packed, err := reply.Pack()
	if err != nil || len(packed) <= resolve.PayloadMost {
		return nil // who sends it finds the fault again
	}
	reply.Answer = nil
	why := fmt.Sprintf("its answer is over %d bytes", resolve.PayloadMost)
	n.refuse(reply, name, policy.Admission{Action: policy.Deny, Reason: why}, dns.RcodeSuccess)
	return nil
}

// mayResolve tells whether a nameserver may see a name. A proxy resolves its names itself, and nobody else is to learn
// them.
func (n *named) mayResolve(name string) bool {
	return !policy.IsInternal(name) && n.judge.MayResolve(name)
}

// reverse tells the name for which an address stands.
func (n *named) reverse(reply *dns.Msg) {
	name, ok := n.names.NameAt(reversed(reply.Question[0].Name))
	if !ok {
		reply.Rcode = dns.RcodeNameError
		return
	}
	reply.Answer = []dns.RR{&dns.PTR{Hdr: header(reply), Ptr: dns.Fqdn(name)}}
}

// reversed is the address of IPv4 that is asked about by a name below in-addr.arpa.
func reversed(name string) netip.Addr {
	labels := dns.SplitDomainName(name)
	if len(labels) != 6 || !strings.EqualFold(labels[4], "in-addr") || !strings.EqualFold(labels[5], "arpa") {
		return netip.Addr{}
	}
	slices.Reverse(labels[:4])
	address, _ := netip.ParseAddr(strings.Join(labels[:4], "."))
	return address
}

// refuse says that a name does not exist, or with the code of success that it has no such record: musl asks again for five
// seconds after REFUSED. The extended error of RFC 8914 has the reason.
func (n *named) refuse(reply *dns.Msg, name string, verdict policy.Admission, code int) {
	n.judge.Note(verdict, name, dns.Type(reply.Question[0].Qtype).String())
	if verdict.Action == policy.Unplug {
		n.judge.Unplug(verdict.Reason)
	}
	reply.Rcode = code
	if options := reply.IsEdns0(); options != nil {
		text := strings.ToValidUTF8(verdict.Reason[:min(len(verdict.Reason), reasonMost)], "")
		options.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked, ExtraText: text}}
	}
}

// header begins the only record of an answer.
func header(reply *dns.Msg) dns.RR_Header {
	question := reply.Question[0]
	return dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: question.Qclass, Ttl: ttlSeconds}
}

// setCode takes over a nameserver's code. Those that need the options of a message are about its own options.
func setCode(reply *dns.Msg, code int) {
	if code > 0xf {
		code = dns.RcodeServerFailure
	}
	reply.Rcode = code
}
