{{- define "toolsieve.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "toolsieve.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "toolsieve.selectorLabels" -}}
app.kubernetes.io/name: {{ include "toolsieve.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "toolsieve.labels" -}}
{{ include "toolsieve.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "toolsieve.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{- .Values.publicUrl -}}
{{- else if .Values.ingress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host -}}
{{- end -}}
{{- end -}}

{{- define "toolsieve.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-data" (include "toolsieve.fullname" .)) -}}
{{- end -}}

{{/* Whether the chart creates a ConfigMap. */}}
{{- define "toolsieve.hasConfig" -}}
{{- if or .Values.servers.inline (ne (trim .Values.settings) "") -}}true{{- end -}}
{{- end -}}

{{/* Whether there can be more than one pod. */}}
{{- define "toolsieve.hasSeveralPods" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}true{{- end -}}
{{- end -}}

{{/* Rejects contradictory values, and reports all problems together. */}}
{{- define "toolsieve.validate" -}}
{{- $problems := list -}}
{{- if not .Values.image.repository -}}
{{- $problems = append $problems "image.repository: is empty; set it to the image that you built with deploy/Dockerfile" -}}
{{- end -}}
{{- if include "toolsieve.hasSeveralPods" . -}}
{{- $many := ternary "autoscaling" "replicas" .Values.autoscaling.enabled -}}
{{- if not .Values.database.existingSecret -}}
{{- $problems = append $problems (printf "%s: several pods need a database for their state; set database.existingSecret, or use one pod" $many) -}}
{{- end -}}
{{- if .Values.persistence.enabled -}}
{{- $problems = append $problems (printf "%s: only one pod can use a data folder; set persistence.enabled to false, so that each pod has its own" $many) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems "autoscaling: minReplicas is greater than maxReplicas; lower it" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (ne (int .Values.replicas) 1) -}}
{{- $problems = append $problems "replicas: has no effect with autoscaling; set autoscaling.minReplicas instead" -}}
{{- end -}}

{{- $sources := list -}}
{{- if .Values.servers.inline }}{{ $sources = append $sources "servers.inline" }}{{ end -}}
{{- if .Values.servers.existingConfigMap }}{{ $sources = append $sources "servers.existingConfigMap" }}{{ end -}}
{{- if .Values.servers.existingSecret }}{{ $sources = append $sources "servers.existingSecret" }}{{ end -}}
{{- if not $sources -}}
{{- $problems = append $problems "servers: there are no MCP servers; set servers.inline, servers.existingConfigMap or servers.existingSecret" -}}
{{- else if gt (len $sources) 1 -}}
{{- $problems = append $problems (printf "servers: %s are set; keep one of them" (join " and " $sources)) -}}
{{- end -}}

{{- if and .Values.keys.existingSecret .Values.keys.insecure -}}
{{- $problems = append $problems "keys: existingSecret and insecure are set; keep one of them" -}}
{{- else if not (or .Values.keys.existingSecret .Values.keys.insecure) -}}
{{- $problems = append $problems "keys: other pods can reach the service, so it needs a key; set keys.existingSecret, or allow everybody with keys.insecure" -}}
{{- end -}}

{{- if and .Values.persistence.existingClaim (not .Values.persistence.enabled) -}}
{{- $problems = append $problems "persistence: existingClaim is set, but enabled is false; set persistence.enabled to true, or remove the claim" -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim .Values.persistence.storageClass -}}
{{- $problems = append $problems "persistence: storageClass has no effect on an existingClaim; keep one of them" -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim (eq .Values.persistence.existingClaim .Values.home.existingClaim) -}}
{{- $problems = append $problems "home.existingClaim: is the claim of the data folder; use another claim" -}}
{{- end -}}

{{- if .Values.ingress.enabled -}}
{{- if not .Values.ingress.host -}}
{{- $problems = append $problems "ingress.host: is empty; set it to the name under which people reach the service" -}}
{{- else if and .Values.publicUrl (ne (get (urlParse .Values.publicUrl) "host" | splitList ":" | first) .Values.ingress.host) -}}
{{- $problems = append $problems (printf "publicUrl: %s is not at ingress.host (%s), so the service would reject its own pages; make them match" .Values.publicUrl .Values.ingress.host) -}}
{{- end -}}
{{- else if or .Values.ingress.host .Values.ingress.tlsSecret -}}
{{- $problems = append $problems "ingress: host or tlsSecret is set, but enabled is false; set ingress.enabled to true, or remove them" -}}
{{- end -}}

{{- if and .Values.podMonitor.enabled .Values.podMonitor.credentials.name .Values.keys.insecure -}}
{{- $problems = append $problems "podMonitor.credentials.name: has no effect with keys.insecure; keep one of them" -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.podMonitor.enabled) -}}
{{- $problems = append $problems "prometheusRule: is enabled, but nothing scrapes the metrics; set podMonitor.enabled to true too" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- $problems = append $problems "networkPolicy.metricsFrom: is empty, so the policy keeps Prometheus out; name its pods, or set podMonitor.enabled to false" -}}
{{- end -}}
{{- if and (not .Values.networkPolicy.enabled) (or .Values.networkPolicy.from .Values.networkPolicy.metricsFrom (not (kindIs "invalid" .Values.networkPolicy.egress))) -}}
{{- $problems = append $problems "networkPolicy: rules are set, but enabled is false; set networkPolicy.enabled to true, or remove the rules" -}}
{{- end -}}

{{- $user := .Values.podSecurityContext.runAsUser -}}
{{- if and .Values.podSecurityContext.runAsNonRoot (not (kindIs "invalid" $user)) (eq (int $user) 0) -}}
{{- $problems = append $problems "podSecurityContext: runAsUser is root, but runAsNonRoot is true; use another user" -}}
{{- end -}}

{{- /* The values in env that the service itself reads; they come before the settings. */ -}}
{{- $variables := dict -}}
{{- range .Values.env -}}
{{- if and (hasKey . "value") (not (kindIs "invalid" .value)) }}{{ $_ := set $variables .name (toString .value) }}{{ end -}}
{{- if and (has .name (list "TOOLSIEVE_HTTP__TLS_CERTIFICATE" "TOOLSIEVE_HTTP__TLS_KEY")) (ne (toString (get . "value" | default "")) "") -}}
{{- $problems = append $problems (printf "env: contains %s, but the probes and the Service use plain HTTP; use ingress.tlsSecret instead" .name) -}}
{{- end -}}
{{- end -}}

{{- $settings := fromToml .Values.settings -}}
{{- if hasKey $settings "Error" -}}
{{- $problems = append $problems (printf "settings: is not TOML: %s" (get $settings "Error")) -}}
{{- else -}}
{{- $http := get $settings "http" | default dict -}}
{{- $store := get $settings "store" | default dict -}}
{{- range $key := list "host" "port" "insecure" -}}
{{- if hasKey $http $key -}}
{{- $problems = append $problems (printf "settings: the chart sets http.%s; remove it" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey $http "public_url" -}}
{{- $problems = append $problems "settings: contains http.public_url; use publicUrl instead" -}}
{{- end -}}
{{- if or (hasKey $http "tls_certificate") (hasKey $http "tls_key") -}}
{{- $problems = append $problems "settings: contains http.tls_certificate or http.tls_key, but the probes and the Service use plain HTTP; use ingress.tlsSecret instead" -}}
{{- end -}}
{{- $metrics := get $settings "metrics" | default dict -}}
{{- $switch := get $variables "TOOLSIEVE_METRICS__ENABLED" | trim | lower -}}
{{- if and .Values.podMonitor.enabled (has $switch (list "false" "0" "no" "off")) -}}
{{- $problems = append $problems "podMonitor: is enabled, but TOOLSIEVE_METRICS__ENABLED in env disables the metrics; keep one of them" -}}
{{- else if and .Values.podMonitor.enabled (not $switch) (hasKey $metrics "enabled") (not (get $metrics "enabled")) -}}
{{- $problems = append $problems "podMonitor: is enabled, but the settings disable the metrics; keep one of them" -}}
{{- end -}}
{{- $delay := get $variables "TOOLSIEVE_HTTP__SHUTDOWN_DELAY_SECONDS" | default (get $http "shutdown_delay_seconds") | default 0 | int -}}
{{- if .Values.database.existingSecret }}{{ $delay = int .Values.shutdownDelaySeconds }}{{ end -}}
{{- $timeout := get $variables "TOOLSIEVE_HTTP__SHUTDOWN_TIMEOUT_SECONDS" | default (get $http "shutdown_timeout_seconds") | default 5 | int -}}
{{- $needed := add $delay $timeout 20 -}}
{{- if gt (int $needed) (int .Values.terminationGracePeriodSeconds) -}}
{{- $problems = append $problems (printf "terminationGracePeriodSeconds: the pod is killed before its requests are complete; raise it to at least %d: %d for the shutdown delay, %d for running requests, and 20 for MCP servers and pending records" (int $needed) $delay $timeout) -}}
{{- end -}}
{{- if and (hasKey $store "url") .Values.database.existingSecret -}}
{{- $problems = append $problems "settings: contains store.url, but database.existingSecret is set; keep one of them" -}}
{{- end -}}
{{- if and (hasKey $http "shutdown_delay_seconds") .Values.database.existingSecret -}}
{{- $problems = append $problems "settings: contains http.shutdown_delay_seconds; use shutdownDelaySeconds instead" -}}
{{- end -}}
{{- if hasKey $store "data_dir" -}}
{{- $problems = append $problems "settings: the chart sets store.data_dir; remove it" -}}
{{- end -}}
{{- end -}}

{{- $reserved := list "TOOLSIEVE_HOST" "TOOLSIEVE_PORT" "TOOLSIEVE_DATA_DIR" "TOOLSIEVE_HTTP__HOST" "TOOLSIEVE_HTTP__PORT" "TOOLSIEVE_HTTP__PUBLIC_URL" "TOOLSIEVE_HTTP__INSECURE" "TOOLSIEVE_HTTP__REPLICA" "TOOLSIEVE_STORE__DATA_DIR" "CREDENTIALS_DIRECTORY" "HOME" -}}
{{- if .Values.database.existingSecret }}{{ $reserved = concat $reserved (list "DATABASE_URL" "TOOLSIEVE_STORE__URL" "TOOLSIEVE_HTTP__SHUTDOWN_DELAY_SECONDS") }}{{ end -}}
{{- range .Values.env -}}
{{- if has .name $reserved -}}
{{- $problems = append $problems (printf "env: the chart sets %s; remove it" .name) -}}
{{- end -}}
{{- end -}}

{{- if $problems -}}
{{- fail (printf "\n\nThe values can't work:\n  - %s\n" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end -}}
