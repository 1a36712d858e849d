package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	configMost = 4 << 20
	layersMost = 400
)

type resolveRequest struct {
	place
}

// resolved is an image of this machine's architecture, as its registry describes it.
type resolved struct {
	Digest string          `json:"digest"`
	Config json.RawMessage `json:"config"`
	Layers []blob          `json:"layers"`
}

type blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

func resolve(ctx context.Context, request *resolveRequest) (any, error) {
	sources, err := request.open()
	if err != nil {
		return nil, err
	}
	return fromFirst(ctx, sources, func(s *source) (*resolved, error) { return s.resolve(ctx) })
}

// fromFirst tries one source after the other. The answer of the last one, the registry itself, counts.
func fromFirst[T any](ctx context.Context, sources []*source, try func(*source) (T, error)) (T, error) {
	var result T
	var err error
	for _, each := range sources {
		if result, err = try(each); err == nil || ctx.Err() != nil {
			return result, err
		}
	}
	return result, err
}

func (s *source) resolve(ctx context.Context) (*resolved, error) {
	carrier, err := s.transport(ctx)
	if err != nil {
		return nil, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(carrier)}
	found, err := remote.Get(s.ref, options...)
	if err != nil {
		return nil, err
	}
	if found.MediaType.IsIndex() {
		index, err := found.ImageIndex()
		if err != nil {
			return nil, err
		}
		digest, err := choose(index)
		if err != nil {
			return nil, err
		}
		if found, err = remote.Get(s.ref.Context().Digest(digest.String()), options...); err != nil {
			return nil, err
		}
	}
	if !found.MediaType.IsImage() || found.MediaType == types.DockerManifestSchema1 {
		return nil, newFault("unsupported", "%s is not an image: its type is %q", s.ref, found.MediaType)
	}
	image, err := found.Image()
	if err != nil {
		return nil, err
	}
	return describe(found.Digest, image)
}

// choose finds the image for this machine in an index. One of which the index does not say what it is for may be; its
// configuration tells.
func choose(index v1.ImageIndex) (v1.Hash, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	var others []string
	var unsaid *v1.Hash
	for _, each := range manifest.Manifests {
		switch {
		case !each.MediaType.IsImage():
		case each.Platform == nil:
			if unsaid == nil {
				unsaid = &each.Digest
			}
		case each.Platform.OS == "linux" && each.Platform.Architecture == runtime.GOARCH:
			return each.Digest, nil
		default:
			others = append(others, each.Platform.String())
		}
	}
	if unsaid != nil {
		return *unsaid, nil
	}
	if len(others) == 0 {
		return v1.Hash{}, newFault("unsupported", "it is an index without an image")
	}
	slices.Sort(others)
	return v1.Hash{}, newFault("unsupported", "it has no version for linux/%s, only for %s",
		runtime.GOARCH, strings.Join(slices.Compact(others), ", "))
}

func describe(digest v1.Hash, image v1.Image) (*resolved, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	if manifest.Config.Size > configMost || len(manifest.Layers) > layersMost {
		return nil, newFault("unsupported", "its configuration has %d bytes and it has %d layers; the limits are %d and %d",
			manifest.Config.Size, len(manifest.Layers), configMost, layersMost)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, err
	}
	result := &resolved{Digest: digest.String(), Config: config, Layers: []blob{}}
	if !json.Valid(config) {
		return nil, errors.New("its configuration is not JSON")
	}
	for _, layer := range manifest.Layers {
		if !layer.MediaType.IsLayer() || len(layer.URLs) > 0 || strings.Contains(string(layer.MediaType), "foreign") {
			return nil, newFault("unsupported", "its layer %s is of type %q", layer.Digest, layer.MediaType)
		}
		if layer.Size < 0 || layer.Digest.Algorithm != "sha256" {
			return nil, fmt.Errorf("its layer %s has %d bytes", layer.Digest, layer.Size)
		}
		result.Layers = append(result.Layers, blob{Digest: layer.Digest.String(), Size: layer.Size})
	}
	return result, nil
}
