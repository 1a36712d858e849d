package envd

import (
	"maps"
	"net/http"
	"testing"
)

func TestAProgramIsToldItsSandboxUnlessTheRequestSaysOtherwise(t *testing.T) {
	plain, named := &http.Request{Header: http.Header{}}, &http.Request{Header: http.Header{}}
	named.Header.Set("E2b-Sandbox-Id", "first")
	named.Header.Set("E2b-Template-Id", "base")
	asked := map[string]string{"A": "b", "E2B_TEMPLATE_ID": "mine"}
	if got := told(plain, asked); !maps.Equal(got, asked) {
		t.Error(got)
	}
	wanted := map[string]string{"A": "b", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "first", "E2B_TEMPLATE_ID": "mine"}
	if got := told(named, asked); !maps.Equal(got, wanted) {
		t.Error(got)
	}
	wanted = map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "first", "E2B_TEMPLATE_ID": "base"}
	if got := told(named, nil); !maps.Equal(got, wanted) {
		t.Error(got)
	}
}
