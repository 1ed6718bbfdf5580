package member

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
)

// hopHeaders belong to one connection and never travel on. Idempotency keys
// are among them: net/http repeats a request that carries one.
var hopHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Http2-Settings", "Expect",
	"Idempotency-Key", "X-Idempotency-Key",
}

// identityHeaders say who the client is, or claims to be.
var identityHeaders = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "Forwarded", "X-Real-Ip", "Audit-Id",
}

var identityPrefixes = []string{"Impersonate-", "X-Remote-", "X-Forwarded-"}

// bearerSubprotocol is how a browser sends its token along with a WebSocket.
const bearerSubprotocol = "base64url.bearer.authorization.k8s.io."

// CleanHeaders copies what of a client's headers may travel to a member:
// neither connection headers, nor headers that the client named in Connection,
// nor anything that states an identity.
func CleanHeaders(in http.Header) http.Header {
	out := in.Clone()
	if out == nil {
		out = http.Header{}
	}
	for _, value := range in.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			out.Del(strings.TrimSpace(token))
		}
	}
	for _, h := range hopHeaders {
		out.Del(h)
	}
	for key := range out {
		if isIdentity(key) {
			delete(out, key)
		}
	}
	cleanSubprotocols(out)
	return out
}

// isIdentity compares as lenient servers do: without regard to case, and with
// an underscore for a dash.
func isIdentity(key string) bool {
	key = http.CanonicalHeaderKey(strings.ReplaceAll(key, "_", "-"))
	if slices.Contains(identityHeaders, key) {
		return true
	}
	for _, p := range identityPrefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

func cleanSubprotocols(h http.Header) {
	const key = "Sec-Websocket-Protocol"
	values := h.Values(key)
	if len(values) == 0 {
		return
	}
	var kept []string
	for _, value := range values {
		for p := range strings.SplitSeq(value, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, bearerSubprotocol) {
				kept = append(kept, p)
			}
		}
	}
	h.Del(key)
	if len(kept) > 0 {
		h.Set(key, strings.Join(kept, ", "))
	}
}

// Impersonate sets the headers that let a member act for a user. The header
// must have been cleaned before.
func Impersonate(h http.Header, u user.Info) error {
	if u == nil || u.GetName() == "" {
		return ErrNoUser
	}
	h.Set(transport.ImpersonateUserHeader, u.GetName())
	if uid := u.GetUID(); uid != "" {
		h.Set(transport.ImpersonateUIDHeader, uid)
	}
	for _, g := range u.GetGroups() {
		h.Add(transport.ImpersonateGroupHeader, g)
	}
	for key, values := range u.GetExtra() {
		name := transport.ImpersonateUserExtraHeaderPrefix + escapeExtraKey(key)
		for _, v := range values {
			h.Add(name, v)
		}
	}
	return nil
}

// escapeExtraKey writes a key so that it survives as part of a header name:
// the server lowercases the name and then resolves the percent escapes.
func escapeExtraKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// answerHeaders of a member speak about the connection to it, or about this
// endpoint's own business with the client.
var answerHeaders = []string{
	"Alt-Svc", "Audit-Id", "Strict-Transport-Security", "Www-Authenticate", "Proxy-Authenticate",
	"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
	"Connection", "Proxy-Connection", "Keep-Alive",
	// What runs in a member must not open the endpoint to other sites.
	"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Headers", "Access-Control-Expose-Headers", "Access-Control-Max-Age", "Clear-Site-Data",
}

// ownPrefix begins the headers in which this endpoint itself speaks.
const ownPrefix = "X-Isthmus-"

// CleanAnswer removes the headers of a member's answer that end here.
func CleanAnswer(h http.Header) {
	for _, key := range answerHeaders {
		h.Del(key)
	}
	for key := range h {
		if strings.HasPrefix(key, "Impersonate-") || strings.HasPrefix(key, "X-Remote-") || strings.HasPrefix(key, ownPrefix) {
			delete(h, key)
		}
	}
}
