package envd

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// signed tells why a request for a file is not allowed; "" allows it.
func (a *API) signed(r *http.Request, operation string) string {
	token := a.Settings.Token()
	if token == "" {
		return ""
	}
	if given := r.Header.Get("X-Access-Token"); given != "" {
		if same(given, token) {
			return ""
		}
		return "access token present in header but does not match"
	}
	query := r.URL.Query()
	signature := query.Get("signature")
	if signature == "" {
		return "missing signature query parameter"
	}
	expiration := query.Get("signature_expiration")
	if !same(signature, sign(query.Get("path"), operation, query.Get("username"), token, expiration)) {
		return "invalid signature"
	}
	if expiration == "" {
		return ""
	}
	if at, err := strconv.ParseInt(expiration, 10, 64); err != nil || time.Now().Unix() > at {
		return "signature is already expired"
	}
	return ""
}

func sign(path, operation, username, token, expiration string) string {
	parts := []string{path, operation, username, token}
	if expiration != "" {
		parts = append(parts, expiration)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, ":")))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
